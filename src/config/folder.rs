//! Where this program keeps what a person chose or measured, whatever the system.

use std::path::PathBuf;

/// The folder for this program's files of a user; `None` where the system names no place for it.
pub fn user_folder() -> Option<PathBuf> {
    let of = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = if cfg!(windows) {
        of("APPDATA")
    } else if cfg!(target_os = "macos") {
        of("HOME").map(|home| home.join("Library/Application Support"))
    } else {
        of("XDG_CONFIG_HOME").or_else(|| of("HOME").map(|home| home.join(".config")))
    };
    Some(base?.join("shardlab"))
}
