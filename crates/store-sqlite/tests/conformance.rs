//! The embedded store passes the suite that every backend passes, on threads and on the caller's own.

#[cfg(test)]
mod conformance {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use merkwelt_domain::env::fixed::FixedEnv;
    use merkwelt_store::Backend;
    use merkwelt_store::conformance::{Instance, Keys, START, Subject, founding};
    use merkwelt_store_sqlite::{MasterKey, Options, Sqlite, Threads};

    /// An instance whose folder goes with it.
    struct Fresh {
        instance: Instance<Sqlite>,
        folder: PathBuf,
    }

    impl Subject for Fresh {
        fn backend(&self) -> &dyn Backend {
            self.instance.backend()
        }

        fn env(&self) -> &FixedEnv {
            self.instance.env()
        }

        fn keys(&self) -> &Keys {
            self.instance.keys()
        }
    }

    impl Drop for Fresh {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    fn fresh_on(threads: Threads) -> Box<dyn Subject> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let folder = std::env::temp_dir().join(format!("merkwelt-suite-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let env = Arc::new(FixedEnv::at(START));
        let (founding, keys) = founding(&env);
        let options = Options { threads, ..Options::default() };
        let master = MasterKey::from_bytes([7; 32]);
        let store = Sqlite::create(&folder, &master, founding, env.clone(), options).unwrap();
        Box::new(Fresh { instance: Instance::new(store, env, keys), folder })
    }

    mod pooled {
        fn fresh() -> Box<dyn merkwelt_store::conformance::Subject> {
            super::fresh_on(merkwelt_store_sqlite::Threads::Pool(2.try_into().unwrap()))
        }

        merkwelt_store::conformance_tests!(fresh);
    }

    #[test]
    fn the_suite_passes_on_the_caller_s_own_thread() {
        let failures = merkwelt_store::conformance::run(&|| fresh_on(Threads::Inline));
        assert_eq!(failures, Ok(()));
    }
}
