//! The stand-ins, one module a vendor.

mod a2a;
mod claude_managed_agents;
mod elevenlabs;
mod fields;
mod flux;
mod runway;

use std::sync::Arc;

use crate::standin::{Desk, StandIn};

/// Every stand-in there is.
pub(crate) fn all(desk: &Desk) -> Vec<Arc<dyn StandIn>> {
    vec![
        Arc::new(a2a::A2a::new(desk.clone())),
        Arc::new(claude_managed_agents::Claude::new(desk.clone())),
        Arc::new(elevenlabs::ElevenLabs::new(desk.clone())),
        Arc::new(flux::Flux::new(desk.clone())),
        Arc::new(runway::Runway::new(desk.clone())),
    ]
}
