//! The real binary, seen from outside.

#![cfg(test)]

mod apart;
mod changes;
mod connectors;
mod crash;
mod damage;
mod docs;
mod documents;
mod engines;
mod fetch;
mod folders;
mod machine;
mod model;
mod power;
mod readme;
mod reembed;
mod reranking;
mod running;
mod scripted;
mod service;
mod sources;
