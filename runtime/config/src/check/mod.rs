//! The checker: from files to the proven plan. Pure over [`Source`].
//!
//! Invariants
//! 1. All faults of all files are found in one go; a file that is not TOML hides nothing in the others.
//! 2. Where a file could not be read, names that may stand in it are not called unknown.
//! 3. A plan is made only if there is no fault.

mod cut;
mod database;
mod durable;
mod emit;
mod endpoint;
mod expression;
mod flow;
mod input;
mod isolation;
mod once;
mod queue;
mod roots;
mod routes;
mod schedule;
mod server;
mod statement;
mod step;
mod store;
mod tenant;
mod test;
mod url;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use spillgate_model::{Secret, Type};

use crate::explain::LimitLine;
use crate::fault::{Fault, Faults};
use crate::place::{FileText, Place, Setting};
use crate::plan::{Driver, Origin, Plan, QueuePlan, TenantPlan};
use crate::raw::printable;
use crate::source::Source;
use crate::walk::Walk;

/// What is collected while checking.
pub(crate) struct Checker<'a> {
    source: &'a dyn Source,
    pub(crate) faults: Faults,
    pub(crate) notes: Vec<String>,
    pub(crate) limits: Vec<LimitLine>,
    /// Files read, in order.
    files: Vec<Arc<FileText>>,
    secret_files: Vec<PathBuf>,
    /// Digest of the secrets' values, of which the version shows 16 bits.
    secrets: Sha256,
    /// The type in which inputs read an attribute, and the first place that said so.
    attribute_types: BTreeMap<String, (Type, Place)>,
    /// Names that cannot be found may stand in a file that could not be read.
    pub(crate) incomplete: bool,
}

impl<'a> Checker<'a> {
    fn new(source: &'a dyn Source) -> Self {
        Checker {
            source,
            faults: Faults::default(),
            notes: Vec::new(),
            limits: Vec::new(),
            files: Vec::new(),
            secret_files: Vec::new(),
            secrets: Sha256::new(),
            attribute_types: BTreeMap::new(),
            incomplete: false,
        }
    }

    /// Reads a file, or adds a fault at the place that names it (without one, at the file itself).
    pub(crate) fn read(&mut self, path: &Path, named_at: Option<&Place>) -> Option<Arc<FileText>> {
        let read = self.source.read(path);
        let text = read.as_deref().unwrap_or_default().to_owned();
        let file = FileText::new(path.to_path_buf(), self.files.len(), text);
        self.files.push(file.clone());
        match read {
            Ok(_) => Some(file),
            Err(error) => {
                let place = named_at.cloned().unwrap_or_else(|| Place::start(&file));
                self.faults.add(&place, format!("the file {} {error}", path.display()));
                None
            }
        }
    }

    fn walk<'w>(&'w mut self, file: &'w Arc<FileText>) -> Walk<'w> {
        Walk {
            file,
            source: self.source,
            faults: &mut self.faults,
            notes: &mut self.notes,
            secret_files: &mut self.secret_files,
            secrets: &mut self.secrets,
        }
    }

    /// Records a limit for `explain`.
    pub(crate) fn limit<T>(&mut self, subject: &str, name: impl Into<String>, setting: &Setting<T>, value: impl Into<String>) {
        self.line(subject, name, value, setting.origin());
    }
    pub(crate) fn line(&mut self, subject: &str, name: impl Into<String>, value: impl Into<String>, origin: Origin) {
        self.limits.push(LimitLine { subject: subject.into(), name: name.into(), value: value.into(), origin });
    }

    /// All inputs that read an attribute read it in one type.
    pub(crate) fn attribute_type(&mut self, attribute: &str, kind: Type, place: &Place) {
        match self.attribute_types.get(attribute) {
            Some((other, first)) if *other != kind => {
                let message = format!("reads `{attribute}` as {}, but {} reads it as {}", kind.name(), first.short(), other.name());
                self.faults.add(place, message);
            }
            Some(_) => {}
            None => drop(self.attribute_types.insert(attribute.into(), (kind, place.clone()))),
        }
    }

    /// Attributes in the types in which inputs read them.
    fn with_types(&self, mut tenants: Vec<TenantPlan>) -> Vec<TenantPlan> {
        for tenant in &mut tenants {
            for (name, value) in &mut tenant.attributes {
                let read_as = self.attribute_types.get(&**name).and_then(|(kind, _)| input::as_type(value, *kind));
                *value = read_as.unwrap_or(value.clone());
            }
        }
        tenants
    }

    /// Paths, texts, and 16 bits of the secrets: changes when anything in the files changes, and gives no secret away.
    fn version(&self) -> String {
        let mut digest = Sha256::new();
        for file in &self.files {
            digest.update(file.path.to_string_lossy().as_bytes());
            digest.update([0]);
            digest.update((file.text.len() as u64).to_le_bytes());
            digest.update(file.text.as_bytes());
        }
        digest.update(&self.secrets.clone().finalize()[..2]);
        hexadecimal(&digest.finalize()[..8])
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A database as flows may refer to it, proven or not.
pub(crate) struct KnownDatabase {
    pub(crate) name: Arc<str>,
    /// `None`: its section has a fault there.
    pub(crate) driver: Option<Driver>,
    pub(crate) writable: bool,
    /// Digest of what it is: cached replies of another database are not its own.
    pub(crate) identity: [u8; 32],
    /// `None`: it is off.
    pub(crate) breaker: Option<isolation::BreakerSettings>,
}

/// What flows are checked against.
pub(crate) struct World<'a> {
    pub(crate) databases: &'a [KnownDatabase],
    pub(crate) tenants: &'a [TenantPlan],
    pub(crate) queues: &'a [QueuePlan],
    pub(crate) http_hosts: &'a [String],
    /// Hard budget of the server.
    pub(crate) memory: u64,
}

/// Checks everything.
pub(crate) fn check(source: &dyn Source, server_file: &Path) -> Result<Plan, Vec<Fault>> {
    let mut checker = Checker::new(source);
    let roots = roots::read(&mut checker, server_file);
    let server = server::server(&mut checker, &roots);
    let admins = tenant::admins(&mut checker, &roots);
    let (databases, known) = database::databases(&mut checker, &roots);
    let tenants = tenant::tenants(&mut checker, &roots, &server, &databases);
    tenant::check_keys(&mut checker, &roots, &server);
    isolation::check_reserved(&mut checker, &roots, &databases, &tenants);
    let mut queues = queue::queues(&mut checker, &roots);
    let world =
        World { databases: &known, tenants: &tenants, queues: &queues, http_hosts: &server.http_hosts, memory: server.memory.value };
    let flows = flow::flows(&mut checker, &roots, &server.flows, &world);
    tenant::check_flows(&mut checker, &tenants, &flows);
    store::mark_shared(&mut queues, &tenants, &flows);
    let together = store::Together { server: &server, queues: &queues, tenants: &tenants, flows: &flows };
    store::check_together(&mut checker, &roots, &together);
    if !checker.faults.is_empty() {
        return Err(checker.faults.sorted());
    }
    Ok(Plan {
        version: checker.version(),
        tenants: checker.with_types(tenants),
        queues,
        server,
        admins,
        databases,
        flows: flows.into_iter().map(Arc::new).collect(),
        notes: checker.notes,
        files: checker.files.iter().map(|file| file.path.to_path_buf()).collect(),
        texts: checker.files.iter().map(|file| Secret::new(file.text.as_str())).collect(),
        secrets: crate::plan::SecretsDigest(checker.secrets.finalize().into()),
        secret_files: checker.secret_files,
        limits: checker.limits,
    })
}

/// What a name may be made of.
#[derive(Clone, Copy)]
pub(crate) enum Naming {
    /// Letters, digits, `_`: fit for expressions and parameters.
    Identifier,
    /// Also `-` and `.`.
    Free,
}

const NAME_LENGTH: usize = 64;

/// Checks a name; a fault says what is allowed.
pub(crate) fn check_name(checker: &mut Checker<'_>, what: &str, name: &str, naming: Naming, place: &Place) {
    let starts = |letter: char| letter.is_ascii_alphabetic() || matches!(naming, Naming::Identifier) && letter == '_';
    let within =
        |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || matches!(naming, Naming::Free) && matches!(letter, '-' | '.');
    if !name.starts_with(starts) || !name.chars().all(within) || name.len() > NAME_LENGTH {
        let allowed = match naming {
            Naming::Identifier => "letters, digits and _",
            Naming::Free => "letters, digits, _, - and .",
        };
        let message =
            format!("expected the name of {what} ({allowed}, at most {NAME_LENGTH}, a letter first), found `{}`", printable(name));
        checker.faults.add(place, message);
    }
}
