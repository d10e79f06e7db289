//! What `longhaul vendors list` and `show`, and `GET /v1/vendors`, tell.

use crate::connector::{
    AuthScheme, Cadence, ConnectorLimits, LostStart, OptionSpec, Price, Retirement, SettingSpec, VendorFile,
};
use crate::load::{Registry, Unsupported};
use crate::vocabulary::{Task, Unit};
use serde::Serialize;
use std::collections::BTreeMap;

/// One vendor in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VendorSummary {
    /// Its name.
    pub vendor: String,
    /// For people.
    pub title: String,
    /// What it does.
    pub tasks: Vec<Task>,
    /// Formats it makes.
    pub formats: Vec<String>,
    /// What a lost start means.
    pub lost_start: LostStart,
    /// It can stop a job.
    pub cancels: bool,
    /// It asks questions.
    pub asks: bool,
    /// The unit it bills in.
    pub unit: Unit,
    /// The day its wire was last checked.
    pub verified: String,
    /// Its documentation.
    pub docs: String,
}

/// One vendor with everything a user of it needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VendorDetail {
    /// What the list tells.
    #[serde(flatten)]
    pub summary: VendorSummary,
    /// What a lost start means, in a sentence.
    pub lost_start_means: String,
    /// What the facts were read from.
    pub sources: Vec<String>,
    /// Default base URL; empty where each connector names its own.
    pub base_url: String,
    /// Base URLs that the setting `region` chooses from.
    pub regions: BTreeMap<String, String>,
    /// How the credential travels by default.
    pub auth: AuthScheme,
    /// Other ways, chosen by the setting `auth`.
    pub auth_choices: BTreeMap<String, AuthScheme>,
    /// A cancel erases the record: usage is read and booked before it.
    pub cancel_erases: bool,
    /// The answer to a start carries the outputs.
    pub synchronous: bool,
    /// Seconds a paid start may stay silent.
    pub start_silence_s: u64,
    /// The same for some models.
    pub model_silence_s: BTreeMap<String, u64>,
    /// Minutes after which a job without `max_minutes` of its own is stopped.
    pub max_minutes: u32,
    /// Prices with their dates and sources.
    pub prices: Vec<Price>,
    /// Default cadence.
    pub cadence: Cadence,
    /// Default limits.
    pub limits: ConnectorLimits,
    /// Settings of a connector.
    pub settings: BTreeMap<String, SettingSpec>,
    /// Options of a job.
    pub options: BTreeMap<String, OptionSpec>,
    /// Retirements known.
    pub retirements: Vec<Retirement>,
}

/// The whole list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VendorList {
    /// Every vendor, by name.
    pub vendors: Vec<VendorSummary>,
    /// Services without a legitimate API, each with its alternative.
    pub unsupported: Vec<Unsupported>,
}

impl From<&VendorFile> for VendorSummary {
    fn from(file: &VendorFile) -> Self {
        Self {
            vendor: file.vendor.clone(),
            title: file.title.clone(),
            tasks: file.tasks.clone(),
            formats: file.formats.clone(),
            lost_start: file.lost_start,
            cancels: file.cancels,
            asks: file.asks,
            unit: file.unit,
            verified: file.verified.clone(),
            docs: file.docs.clone(),
        }
    }
}

impl From<&VendorFile> for VendorDetail {
    fn from(file: &VendorFile) -> Self {
        Self {
            summary: file.into(),
            lost_start_means: lost_start_means(file),
            sources: file.sources.clone(),
            base_url: file.base_url.clone(),
            regions: file.regions.clone(),
            auth: file.auth.clone(),
            auth_choices: file.auth_choices.clone(),
            cancel_erases: file.cancel_erases,
            synchronous: file.synchronous,
            start_silence_s: file.start_silence_s,
            model_silence_s: file.model_silence_s.clone(),
            max_minutes: file.max_minutes,
            prices: file.prices.clone(),
            cadence: file.cadence,
            limits: file.limits,
            settings: file.settings.clone(),
            options: file.options.clone(),
            retirements: file.retirements.clone(),
        }
    }
}

impl Registry {
    /// Every vendor and every unsupported service, as `vendors list` shows them.
    #[must_use]
    pub fn list(&self) -> VendorList {
        VendorList {
            vendors: self.vendors().map(|file| file.as_ref().into()).collect(),
            unsupported: self.unsupported().to_vec(),
        }
    }
}

/// What becomes of a start whose answer was lost, in a sentence.
#[must_use]
pub fn lost_start_means(file: &VendorFile) -> String {
    match (file.lost_start, file.absence_proves) {
        (LostStart::Key, _) => {
            format!("sent again with the same key for up to {} s: the vendor makes it once", file.find_s)
        }
        (LostStart::Find, true) => {
            format!("looked for at the vendor for up to {} s; started again where it proves absent", file.find_s)
        }
        (LostStart::Find, false) => {
            format!(
                "looked for at the vendor for up to {} s; parked as start_unknown where it is not found",
                file.find_s
            )
        }
        (LostStart::None, _) => "cannot be looked up: parked as start_unknown until a person decides".to_owned(),
    }
}
