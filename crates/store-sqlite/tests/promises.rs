//! What the embedded store promises beyond the conformance suite: what lies on the disk, what survives, and
//! who is kept out.

#[cfg(test)]
mod promises {
    mod at_rest;
    mod coming;
    mod damage;
    mod erasure;
    mod group_commit;
    mod lifecycle;
    mod reembed;
    mod sources;
    mod vectors;
    mod world;
}
