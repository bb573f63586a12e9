//! What a device has reported outside of any call: errors nobody caught, and its loss.
//!
//! wgpu reports both through callbacks. They are kept here and turned into an [`ExecError`] by the
//! next call, so that no failure of a driver ends in a panic.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::exec::ExecError;

/// The first thing that went wrong with a device.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    device: String,
    /// Set after `why`; asked for each instruction, so it takes no lock.
    failed: Arc<AtomicBool>,
    why: Arc<Mutex<Option<String>>>,
}

const RETRY: &str = "Run again; if it persists, update the driver, use smaller microbatches, or \
                     take --device cpu";

impl Fault {
    /// Watches a device called `name`.
    pub(super) fn watch(device: &wgpu::Device, name: &str) -> Self {
        let fault = Self { device: name.to_owned(), failed: Arc::default(), why: Arc::default() };
        let lost = fault.clone();
        device.set_device_lost_callback(move |reason, message| {
            lost.set(format!("the device was lost ({reason:?}: {})", message.trim()));
        });
        let uncaptured = fault.clone();
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            uncaptured.set(format!("the driver reported: {}", one_line(&error.to_string())));
        }));
        fault
    }

    /// Keeps the first reason; later ones are its consequences.
    pub(super) fn set(&self, why: String) {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.failed.store(true, Ordering::Release);
    }

    /// An error if the device has failed.
    pub(super) fn check(&self) -> Result<(), ExecError> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        match &*self.why.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(why) => Err(self.error(why.clone(), RETRY)),
            None => Ok(()),
        }
    }

    /// A failure seen by a call itself.
    pub(super) fn failed(&self, why: impl Into<String>) -> ExecError {
        self.check().err().unwrap_or_else(|| self.error(why, RETRY))
    }

    /// An error of this device with what to do.
    pub(super) fn error(&self, why: impl Into<String>, remedy: impl Into<String>) -> ExecError {
        ExecError::Device { device: self.device.clone(), why: why.into(), remedy: remedy.into() }
    }
}

/// An error message of wgpu without its line breaks.
pub(super) fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}
