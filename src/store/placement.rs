//! placement, for now
use super::engine::Engine;
use super::geometry::{Class, Geometry};
use super::log::{Batched, Writer, Written};
use crate::error::Result;

impl Engine {
    pub(crate) fn append_somewhere(
        &self,
        writer: &mut Writer,
        geometry: &Geometry,
        batch: Batched<'_>,
    ) -> Result<Written> {
        writer.append(&self.devices, geometry, Class::Fast, batch)
    }
}
