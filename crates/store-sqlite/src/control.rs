//! `control.db`: tenants with their wrapped keys and ledger seeds, and API keys. Small and asked on every
//! request, so tenants and API keys are also held in memory; the lock file sees to it that nobody else
//! changes the file.

use std::collections::BTreeMap;
use std::path::Path;

use merkwelt_authz::{Credential, Role, SecretDigest};
use merkwelt_domain::{Env, KeyId, SubjectId, TenantId, TenantName, Timestamp};
use merkwelt_store::query::ModelId;
use merkwelt_store::{Error, KeyInfo, Tenant};
use rusqlite::{Connection, OptionalExtension as _, Row};

use crate::crypt::{MasterKey, Place, Sealer, Secret};
use crate::error::{OpenError, Sql as _, on_open};
use crate::schema;

const NAME: &str = schema::CONTROL.name;

/// Names in `meta` that begin with this mark a tenant with an erasure under way.
const ERASING: &str = "erasing/";

struct TenantRow {
    tenant: Tenant,
    key: Vec<u8>,
    seed: Vec<u8>,
}

/// The secrets of one tenant, unwrapped.
pub(crate) struct TenantSecrets {
    pub(crate) key: Secret,
    pub(crate) seed: Secret,
}

impl TenantSecrets {
    pub(crate) fn random(env: &dyn Env) -> Self {
        Self { key: Secret::random(env), seed: Secret::random(env) }
    }
}

/// The open `control.db`.
pub(crate) struct Control {
    connection: Connection,
    wrapping: Sealer,
    system: Option<TenantId>,
    tenants: BTreeMap<TenantId, TenantRow>,
    keys: BTreeMap<KeyId, KeyInfo>,
}

impl Control {
    /// Creates the file and binds it to the instance key.
    pub(crate) fn create(path: &Path, master: &MasterKey) -> Result<Self, OpenError> {
        let connection = schema::create(&schema::CONTROL, path)?;
        connection
            .execute(
                "INSERT INTO meta (name, value) VALUES ('key_check', ?1)",
                [master.check_value().expose().as_slice()],
            )
            .opening(NAME)?;
        Self::over(connection, master)
    }

    /// Opens the file. A wrong instance key is refused before anything is read.
    pub(crate) fn open(path: &Path, master: &MasterKey) -> Result<Self, OpenError> {
        let connection = schema::open(&schema::CONTROL, path)?;
        let intact: String =
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).opening(NAME)?;
        if intact != "ok" {
            return Err(OpenError::Damaged(NAME));
        }
        let kept: Option<Vec<u8>> = connection
            .query_row("SELECT value FROM meta WHERE name = 'key_check'", [], |row| row.get(0))
            .optional()
            .opening(NAME)?;
        let kept = kept.ok_or(OpenError::Damaged(NAME))?;
        if kept != master.check_value().expose().as_slice() {
            return Err(OpenError::WrongKey);
        }
        let mut control = Self::over(connection, master)?;
        control.load().map_err(|error| on_open(error, NAME))?;
        if control.system.is_none() { Err(OpenError::Damaged(NAME)) } else { Ok(control) }
    }

    fn over(connection: Connection, master: &MasterKey) -> Result<Self, OpenError> {
        let wrapping = master.wrapping().map_err(|error| on_open(error, NAME))?;
        let (tenants, keys) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { connection, wrapping, system: None, tenants, keys })
    }

    fn load(&mut self) -> Result<(), Error> {
        let mut statement =
            self.connection.prepare("SELECT id, name, created_at, key, seed, system FROM tenants").sql()?;
        let mut rows = statement.query([]).sql()?;
        while let Some(row) = rows.next().sql()? {
            let (row, system) = read_tenant(row)?;
            if system {
                self.system = Some(row.tenant.id.clone());
            }
            self.tenants.insert(row.tenant.id.clone(), row);
        }
        let mut statement = self
            .connection
            .prepare(
                "SELECT id, tenant, digest, role, subject, act_for, label, created_at, expires_at, revoked_at
                 FROM api_keys",
            )
            .sql()?;
        let mut rows = statement.query([]).sql()?;
        while let Some(row) = rows.next().sql()? {
            let info = read_key(row)?;
            self.keys.insert(info.credential.key.clone(), info);
        }
        Ok(())
    }

    /// Records a tenant and its first keys in one transaction.
    pub(crate) fn add_tenant(
        &mut self,
        env: &dyn Env,
        tenant: &Tenant,
        secrets: &TenantSecrets,
        system: bool,
        keys: &[KeyInfo],
    ) -> Result<(), Error> {
        let id = tenant.id.as_str();
        let wrap =
            |column, secret: &Secret| self.wrapping.seal(env, tenant_place(id, column), secret.expose());
        let (key, seed) = (wrap("key", &secrets.key)?, wrap("seed", &secrets.seed)?);
        let tx = self.connection.transaction().sql()?;
        tx.execute(
            "INSERT INTO tenants (id, name, system, created_at, key, seed) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            (id, tenant.name.as_str(), system, tenant.created_at.millis(), &key, &seed),
        )
        .sql()?;
        for info in keys {
            insert_key(&tx, info)?;
        }
        tx.commit().sql()?;
        if system {
            self.system = Some(tenant.id.clone());
        }
        self.tenants.insert(tenant.id.clone(), TenantRow { tenant: tenant.clone(), key, seed });
        self.keys.extend(keys.iter().map(|info| (info.credential.key.clone(), info.clone())));
        Ok(())
    }

    pub(crate) fn add_key(&mut self, info: KeyInfo) -> Result<(), Error> {
        insert_key(&self.connection, &info)?;
        self.keys.insert(info.credential.key.clone(), info);
        Ok(())
    }

    pub(crate) fn revoke_key(&mut self, key: &KeyId, at: Timestamp) -> Result<(), Error> {
        self.connection
            .execute(
                "UPDATE api_keys SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL",
                (key.as_str(), at.millis()),
            )
            .sql()?;
        if let Some(info) = self.keys.get_mut(key) {
            info.credential.revoked_at.get_or_insert(at);
        }
        Ok(())
    }

    /// Ends every key that is bound to a subject and unlinks it. Returns how many there were.
    pub(crate) fn unbind(
        &mut self,
        tenant: &TenantId,
        subject: &SubjectId,
        at: Timestamp,
    ) -> Result<u64, Error> {
        let bound: Vec<KeyId> = self
            .keys
            .values()
            .filter(|info| {
                &info.credential.tenant == tenant && info.credential.subject.as_ref() == Some(subject)
            })
            .map(|info| info.credential.key.clone())
            .collect();
        for key in &bound {
            self.revoke_key(key, at)?;
        }
        u64::try_from(bound.len()).map_err(|_| Error::Unavailable)
    }

    /// Notes that an erasure of a tenant is under way, or that none is.
    pub(crate) fn mark_erasing(&self, tenant: &TenantId, erasing: bool) -> Result<(), Error> {
        let name = format!("{ERASING}{}", tenant.as_str());
        let sql = if erasing {
            "INSERT OR IGNORE INTO meta (name, value) VALUES (?1, x'')"
        } else {
            "DELETE FROM meta WHERE name = ?1"
        };
        self.connection.execute(sql, [name]).sql()?;
        Ok(())
    }

    /// The tenants in which an erasure may have been interrupted.
    pub(crate) fn erasing(&self) -> Result<Vec<TenantId>, Error> {
        let own = |id: &&TenantId| {
            let name = format!("{ERASING}{}", id.as_str());
            let sql = "SELECT 1 FROM meta WHERE name = ?1";
            self.connection.prepare_cached(sql).and_then(|mut row| row.exists([name])).unwrap_or(true)
        };
        Ok(self.tenants.keys().filter(own).cloned().collect())
    }

    /// The unwrapped secrets of a tenant.
    pub(crate) fn secrets(&self, tenant: &TenantId) -> Result<Option<TenantSecrets>, Error> {
        let Some(row) = self.tenants.get(tenant) else { return Ok(None) };
        let id = tenant.as_str();
        let unwrap = |column, wrapped: &[u8]| {
            Secret::from_slice(&self.wrapping.open(tenant_place(id, column), wrapped)?)
        };
        Ok(Some(TenantSecrets { key: unwrap("key", &row.key)?, seed: unwrap("seed", &row.seed)? }))
    }

    /// Names the instance's own tenant before its row stands.
    pub(crate) fn set_system(&mut self, tenant: &TenantId) {
        self.system = Some(tenant.clone());
    }

    pub(crate) fn system(&self) -> Result<TenantId, Error> {
        self.system.clone().ok_or(Error::Damaged)
    }

    /// All tenants with content, by name.
    pub(crate) fn tenants(&self) -> Vec<Tenant> {
        let own = |row: &&TenantRow| Some(&row.tenant.id) != self.system.as_ref();
        let mut tenants: Vec<_> = self.tenants.values().filter(own).map(|row| row.tenant.clone()).collect();
        tenants.sort_by(|a, b| a.name.cmp(&b.name));
        tenants
    }

    /// All tenants, the instance's own among them.
    pub(crate) fn tenant_ids(&self) -> Vec<TenantId> {
        self.tenants.keys().cloned().collect()
    }

    pub(crate) fn has_tenant(&self, id: &TenantId, name: &TenantName) -> bool {
        self.tenants.contains_key(id) || self.tenants.values().any(|row| &row.tenant.name == name)
    }

    pub(crate) fn key(&self, key: &KeyId) -> Option<&KeyInfo> {
        self.keys.get(key)
    }

    pub(crate) fn keys_of(&self, tenant: &TenantId) -> Vec<KeyInfo> {
        self.keys.values().filter(|info| &info.credential.tenant == tenant).cloned().collect()
    }

    /// The embedding model the instance was configured with, if it ever was.
    pub(crate) fn model(&self) -> Result<Option<ModelId>, OpenError> {
        self.model_at("model")
    }

    pub(crate) fn set_model(&self, model: &ModelId) -> Result<(), OpenError> {
        self.set_mark("model", Some(model.as_str().as_bytes()))
    }

    /// What is kept under a name, if anything is.
    pub(crate) fn mark(&self, name: &str) -> Result<Option<Vec<u8>>, OpenError> {
        let sql = "SELECT value FROM meta WHERE name = ?1";
        self.connection.query_row(sql, [name], |row| row.get(0)).optional().opening(NAME)
    }

    /// Keeps a value under a name, or nothing.
    pub(crate) fn set_mark(&self, name: &str, value: Option<&[u8]>) -> Result<(), OpenError> {
        let done = match value {
            Some(value) => self.connection.execute(
                "INSERT INTO meta (name, value) VALUES (?1, ?2)
                 ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (name, value),
            ),
            None => self.connection.execute("DELETE FROM meta WHERE name = ?1", [name]),
        };
        done.map(|_| ()).opening(NAME)
    }

    /// A model that is kept under a name.
    pub(crate) fn model_at(&self, name: &str) -> Result<Option<ModelId>, OpenError> {
        let text =
            self.mark(name)?.map(String::from_utf8).transpose().map_err(|_| OpenError::Damaged(NAME))?;
        Ok(text.map(|text| ModelId::recorded(&text)))
    }
}

fn tenant_place<'a>(id: &'a str, column: &'static str) -> Place<'a> {
    Place { tenant: id, table: "tenants", row: id, revision: 0, column }
}

fn insert_key(connection: &Connection, info: &KeyInfo) -> Result<(), Error> {
    let credential = &info.credential;
    connection
        .execute(
            "INSERT INTO api_keys
               (id, tenant, digest, role, subject, act_for, label, created_at, expires_at, revoked_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            (
                credential.key.as_str(),
                credential.tenant.as_str(),
                credential.digest.as_bytes().as_slice(),
                credential.role.name(),
                credential.subject.as_ref().map(SubjectId::as_str),
                credential.act_for,
                info.label.as_str(),
                info.created_at.millis(),
                credential.expires_at.map(Timestamp::millis),
                credential.revoked_at.map(Timestamp::millis),
            ),
        )
        .sql()?;
    Ok(())
}

fn parsed<T: std::str::FromStr>(row: &Row<'_>, column: usize) -> Result<T, Error> {
    row.get_ref(column).sql()?.as_str().map_err(|_| Error::Damaged)?.parse().map_err(|_| Error::Damaged)
}

fn read_tenant(row: &Row<'_>) -> Result<(TenantRow, bool), Error> {
    let tenant = Tenant {
        id: parsed(row, 0)?,
        name: parsed(row, 1)?,
        created_at: Timestamp::from_millis(row.get(2).sql()?),
    };
    Ok((TenantRow { tenant, key: row.get(3).sql()?, seed: row.get(4).sql()? }, row.get(5).sql()?))
}

fn read_key(row: &Row<'_>) -> Result<KeyInfo, Error> {
    let digest: Vec<u8> = row.get(2).sql()?;
    let role: Role = parsed(row, 3)?;
    let subject: Option<String> = row.get(4).sql()?;
    let time = |column| -> Result<Option<Timestamp>, Error> {
        Ok(row.get::<_, Option<i64>>(column).sql()?.map(Timestamp::from_millis))
    };
    let credential = Credential {
        key: parsed(row, 0)?,
        tenant: parsed(row, 1)?,
        digest: SecretDigest::from_bytes(digest.try_into().map_err(|_| Error::Damaged)?),
        role,
        subject: subject.map(|id| id.parse().map_err(|_| Error::Damaged)).transpose()?,
        act_for: row.get(5).sql()?,
        expires_at: time(8)?,
        revoked_at: time(9)?,
    };
    Ok(KeyInfo { credential, label: parsed(row, 6)?, created_at: Timestamp::from_millis(row.get(7).sql()?) })
}
