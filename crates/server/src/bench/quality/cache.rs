//! Vectors kept from one run to the next by the digest of space, role and text, so that a second run asks the
//! engine nothing. The file is appended to; a record that was cut off is dropped.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use merkwelt_inference::{Descriptor, Embedder, Embedding, Role};
use ring::digest::{SHA256, digest};

type Key = [u8; 32];

/// An embedder that asks another one only once for each text.
pub struct Cached {
    inner: Arc<dyn Embedder>,
    kept: Mutex<Kept>,
}

struct Kept {
    vectors: BTreeMap<Key, Vec<f32>>,
    file: File,
    missed: u64,
}

impl std::fmt::Debug for Cached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Cached").field(&self.inner.descriptor().id()).finish()
    }
}

impl Cached {
    /// Reads what was kept in `path`, or begins it.
    ///
    /// # Errors
    /// The file cannot be read or created.
    pub fn open(inner: Arc<dyn Embedder>, path: &Path) -> anyhow::Result<Self> {
        let name = || format!("the cache of vectors {}", path.display());
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(name)?;
        }
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(name)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(name)?;
        let record = 32 + 4 * inner.descriptor().dimension();
        let mut vectors = BTreeMap::new();
        let whole = bytes.chunks_exact(record);
        let torn = whole.remainder().len();
        for chunk in whole {
            let (key, values) = chunk.split_at(32);
            let values =
                values.chunks_exact(4).filter_map(|four| four.try_into().ok().map(f32::from_le_bytes));
            vectors.insert(key.try_into()?, values.collect());
        }
        let end = u64::try_from(bytes.len() - torn)?;
        file.set_len(end).with_context(name)?;
        file.seek(SeekFrom::Start(end)).with_context(name)?;
        Ok(Self { inner, kept: Mutex::new(Kept { vectors, file, missed: 0 }) })
    }

    /// How many texts the engine was asked for.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.lock().missed
    }

    /// Embeds what is not kept yet, on all processors, so that later calls find it.
    ///
    /// # Errors
    /// The engine fails.
    pub fn warm(&self, role: Role, texts: &[&str], say: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
        let missing: Vec<&str> = {
            let kept = self.lock();
            texts.iter().copied().filter(|text| !kept.vectors.contains_key(&self.key(role, text))).collect()
        };
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        // Some hundred at a time, so that a stopped run keeps what it has.
        for (done, part) in missing.chunks(256 * processors).enumerate() {
            say(&format!("embedding {} of {} texts", done * 256 * processors, missing.len()));
            std::thread::scope(|scope| {
                let each = part.len().div_ceil(processors).max(1);
                let running: Vec<_> = part
                    .chunks(each)
                    .map(|texts| scope.spawn(|| self.embed(role, texts).map(|_| ())))
                    .collect();
                running.into_iter().try_for_each(|thread| {
                    thread.join().map_err(|_| anyhow::anyhow!("the engine died"))??;
                    Ok::<_, anyhow::Error>(())
                })
            })?;
        }
        Ok(())
    }

    fn key(&self, role: Role, text: &str) -> Key {
        let role = match role {
            Role::Query => "query",
            Role::Passage => "passage",
        };
        let named = format!("{}\0{role}\0{text}", self.inner.descriptor().space());
        let mut key = [0; 32];
        key.iter_mut().zip(digest(&SHA256, named.as_bytes()).as_ref()).for_each(|(to, from)| *to = *from);
        key
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn one(&self, role: Role, text: &str) -> Result<Embedding, merkwelt_inference::embed::Error> {
        let key = self.key(role, text);
        let found = self.lock().vectors.get(&key).cloned();
        if let Some(values) = found {
            return Embedding::new(self.inner.descriptor().dimension(), values, false);
        }
        let made = self.inner.embed(role, &[text])?.pop();
        let made = made.ok_or(merkwelt_inference::embed::Error::Engine("no vector"))?;
        let mut record = key.to_vec();
        record.extend(made.as_slice().iter().flat_map(|value| value.to_le_bytes()));
        let mut kept = self.lock();
        kept.missed += 1;
        if kept.vectors.insert(key, made.as_slice().to_vec()).is_none() {
            // What cannot be kept is embedded again next time.
            let _ = kept.file.write_all(&record);
        }
        Ok(made)
    }
}

impl Embedder for Cached {
    fn descriptor(&self) -> &Descriptor {
        self.inner.descriptor()
    }

    fn embed(&self, role: Role, texts: &[&str]) -> Result<Vec<Embedding>, merkwelt_inference::embed::Error> {
        texts.iter().map(|text| self.one(role, text)).collect()
    }
}
