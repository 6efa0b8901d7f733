//! The encoder behind a pipe, for measurements from outside (`benches/against_onnxruntime.py`).
//!
//! Says `start`, waits for a line, loads the model in the directory it was given and says with which
//! instructions it works. Then each line is `{"role": "query", "texts": [..], "repeat": 20}`; it embeds the
//! texts so many times and answers with the vectors of the last time.

use std::error::Error;
use std::io::{BufRead as _, Write as _, stdin, stdout};
use std::path::PathBuf;

use merkwelt_inference::native::E5;
use merkwelt_inference::{Embedder as _, Role, models};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let dir: PathBuf = std::env::args_os().nth(1).ok_or("give the directory of the model file")?.into();
    let mut lines = stdin().lock().lines();
    let mut out = stdout().lock();
    writeln!(out, "start")?;
    let _ = lines.next();
    let path = models::find(&[dir]).ok_or("the model file is not there")?;
    let model = E5::open(models::verify_file(&path)?)?;
    writeln!(out, "{}", model.instructions())?;
    for line in lines {
        let asked: Value = serde_json::from_str(&line?)?;
        let part = |name: &str| asked.get(name).ok_or_else(|| format!("{name} is missing"));
        let role = if part("role")? == "query" { Role::Query } else { Role::Passage };
        let texts = part("texts")?.as_array().ok_or("texts is no list")?;
        let texts: Vec<&str> = texts.iter().filter_map(Value::as_str).collect();
        let mut made = Vec::new();
        for _ in 0..part("repeat")?.as_u64().ok_or("repeat is no number")? {
            made = model.embed(role, &texts)?;
        }
        let vectors: Vec<&[f32]> = made.iter().map(|vector| vector.as_slice()).collect();
        writeln!(out, "{}", json!(vectors))?;
        out.flush()?;
    }
    Ok(())
}
