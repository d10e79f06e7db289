//! The registry: every vendor's file and the services without an API, read and checked.

use crate::connector::VendorFile;
use crate::document::{Document, FileProblem, FileProblems};
use crate::path::{item, join};
use crate::rules::{Found, check_vendor};
use crate::schema::{UNSUPPORTED_FILE, VENDOR_FILE};
use crate::vocabulary::Problem;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A service that no program may use, and what to use instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unsupported {
    /// `[a-z0-9_]+`.
    pub name: String,
    /// For people.
    pub title: String,
    /// Other names that people try.
    #[serde(default)]
    pub also: Vec<String>,
    /// Why it is not supported.
    pub why: String,
    /// The legitimate way to the same end.
    pub instead: String,
    /// Vendors of the registry that do it.
    #[serde(default)]
    pub vendors: Vec<String>,
    /// The day this was looked up, `YYYY-MM-DD`.
    pub as_of: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UnsupportedFile {
    service: Vec<Unsupported>,
}

/// A file's name (for errors) and text.
pub type Source<'t> = (&'t str, &'t str);

macro_rules! connectors {
    ($($name:literal),* $(,)?) => {
        &[$((concat!("registry/connectors/", $name, ".toml"), include_str!(concat!("../connectors/", $name, ".toml")))),*]
    };
}

/// The files that are compiled in. A test holds the list against the folder.
const CONNECTORS: &[Source<'static>] = connectors!["a2a", "claude_managed_agents", "elevenlabs", "flux", "runway"];
const UNSUPPORTED: Source<'static> = ("registry/unsupported.toml", include_str!("../unsupported.toml"));

/// Every vendor there is a file for.
#[derive(Clone, Debug)]
pub struct Registry {
    vendors: BTreeMap<String, Arc<VendorFile>>,
    unsupported: Vec<Unsupported>,
}

impl Registry {
    /// The registry that is compiled in.
    ///
    /// # Errors
    /// Everything wrong with the files; none in a build whose tests passed.
    pub fn builtin() -> Result<Self, FileProblems> {
        Self::read(CONNECTORS, UNSUPPORTED)
    }

    /// Reads and checks vendors' files (named `<vendor>.toml`) and the list of unsupported services.
    ///
    /// # Errors
    /// Everything wrong with all of them, with file, line and key. A file's keys and types come first: what
    /// they must satisfy beyond is checked once those are right.
    pub fn read(connectors: &[Source<'_>], unsupported: Source<'_>) -> Result<Self, FileProblems> {
        let mut problems = Vec::new();
        let mut vendors = BTreeMap::new();
        for source in connectors {
            match read_vendor(*source) {
                Ok(vendor) => {
                    vendors.insert(vendor.vendor.clone(), Arc::new(vendor));
                }
                Err(found) => problems.extend(found),
            }
        }
        let names: Vec<_> = connectors.iter().map(|(file, _)| stem(file)).collect();
        match read_unsupported(unsupported, &names) {
            Ok(unsupported) if problems.is_empty() => Ok(Self { vendors, unsupported }),
            Ok(_) => Err(FileProblems(problems)),
            Err(found) => {
                problems.extend(found);
                Err(FileProblems(problems))
            }
        }
    }

    /// One vendor's file.
    #[must_use]
    pub fn vendor(&self, name: &str) -> Option<&Arc<VendorFile>> {
        self.vendors.get(name)
    }

    /// Every vendor's file, by name.
    pub fn vendors(&self) -> impl Iterator<Item = &Arc<VendorFile>> {
        self.vendors.values()
    }

    /// Every vendor's name, in order.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.vendors.keys().map(String::as_str).collect()
    }

    /// The services without a legitimate API.
    #[must_use]
    pub fn unsupported(&self) -> &[Unsupported] {
        &self.unsupported
    }

    /// The unsupported service of a name or of one of its other names; case, spaces and `-` do not count.
    #[must_use]
    pub fn unsupported_named(&self, name: &str) -> Option<&Unsupported> {
        let name = plain(name);
        self.unsupported
            .iter()
            .find(|service| plain(&service.name) == name || service.also.iter().any(|also| plain(also) == name))
    }
}

fn plain(name: &str) -> String {
    name.trim().to_lowercase().replace(['-', ' ', '.'], "_")
}

fn stem(file: &str) -> &str {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.strip_suffix(".toml").unwrap_or(name)
}

fn read_vendor((file, text): Source<'_>) -> Result<VendorFile, Vec<FileProblem>> {
    let document = Document::parse(file, text)?;
    let vendor: VendorFile = read_checked(&document, VENDOR_FILE)?;
    let mut problems = check_vendor(&vendor);
    if vendor.vendor != stem(file) {
        let message = format!("a vendor's file has its name: this must be `{}`", stem(file));
        problems.push(Problem::new("vendor", "conflict", message));
    }
    if problems.is_empty() { Ok(vendor) } else { Err(document.place(problems)) }
}

fn read_unsupported((file, text): Source<'_>, vendors: &[&str]) -> Result<Vec<Unsupported>, Vec<FileProblem>> {
    let document = Document::parse(file, text)?;
    let services = read_checked::<UnsupportedFile>(&document, UNSUPPORTED_FILE)?.service;
    let mut found = Found::default();
    let mut seen = Vec::new();
    for (index, service) in services.iter().enumerate() {
        let path = item("service", index);
        found.name(&join(&path, "name"), &service.name);
        found.text(&join(&path, "title"), &service.title);
        found.text(&join(&path, "why"), &service.why);
        found.text(&join(&path, "instead"), &service.instead);
        found.date(&join(&path, "as_of"), &service.as_of);
        for name in std::iter::once(&service.name).chain(&service.also) {
            let name = plain(name);
            let is_free = !seen.contains(&name) && !vendors.contains(&name.as_str());
            let message = format!("`{name}` is the name of a vendor or of a service above");
            found.unless(is_free, &join(&path, "name"), "conflict", message);
            seen.push(name);
        }
        for (at, vendor) in service.vendors.iter().enumerate() {
            let message = "the registry has no such vendor";
            let is_known = vendors.contains(&vendor.as_str());
            found.unless(is_known, &item(&join(&path, "vendors"), at), "not_allowed", message);
        }
    }
    if found.0.is_empty() { Ok(services) } else { Err(document.place(found.0)) }
}

fn read_checked<T: serde::de::DeserializeOwned>(
    document: &Document<'_>,
    fields: &[crate::shape::Field],
) -> Result<T, Vec<FileProblem>> {
    let problems = document.check(fields);
    if problems.is_empty() { document.read() } else { Err(problems) }
}
