//! Connectors' circuits: kept beside their paces, and heard of like these.

use super::Inner;
use super::value::{int, write};
use super::watch::NEW_PACE;
use crate::StoreResult;
use crate::limits::Circuits;
use std::collections::BTreeMap;
use std::sync::PoisonError;

impl Inner {
    /// A connector's circuits, as last heard.
    pub(super) fn circuits_of(&self, connector: &str) -> Circuits {
        let circuits = self.circuits.read().unwrap_or_else(PoisonError::into_inner);
        circuits.get(connector).cloned().unwrap_or_default()
    }

    pub(super) async fn circuits(&self) -> StoreResult<BTreeMap<String, Circuits>> {
        let kept = self.kept().await?.into_iter();
        let circuits = kept.map(|(name, kept)| (name, kept.circuits)).filter(|(_, circuits)| circuits.rev > 0);
        Ok(circuits.collect())
    }

    pub(super) async fn set_circuits(&self, connector: &str, circuits: Circuits) -> StoreResult<bool> {
        let text = write("a connector's circuits", &circuits)?;
        let args = [format!("circuits:{connector}"), circuits.rev.to_string(), text].map(String::into_bytes);
        if int(&self.twice(&self.scripts.circuits, &self.names.connectors(), &args).await?)? != 1 {
            return Ok(false);
        }
        let before = {
            let mut known = self.circuits.write().unwrap_or_else(PoisonError::into_inner);
            known.insert(connector.to_owned(), circuits.clone()).unwrap_or_default()
        };
        if !before.act_alike(&circuits) {
            self.open_gates();
            self.wake_for(NEW_PACE).await?;
        }
        Ok(true)
    }
}
