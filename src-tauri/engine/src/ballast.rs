//! A file that is given up when the disk is full, so that a person can still look, stop and discard.

use crate::error::Error;
use db::Database;
use model::layout::Layout;
use std::os::unix::fs::OpenOptionsExt;

/// What opening the database and a few steps in it take.
const SIZE: usize = 4 << 20;

/// Opens the database, without the ballast where that is the only way; lays it down again when there is room.
pub(crate) fn open(layout: &Layout) -> Result<Database, Error> {
    let file = layout.data.join("ballast");
    let db = match Database::open(&layout.database()) {
        Ok(db) => db,
        Err(first) => {
            if std::fs::remove_file(&file).is_err() {
                return Err(first.into());
            }
            return Ok(Database::open(&layout.database())?);
        }
    };
    if !file.exists() {
        let laid = std::fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&file).and_then(|mut f| {
            // Written out: a hole would hold no room.
            std::io::Write::write_all(&mut f, &vec![0x55; SIZE])
        });
        if laid.is_err() {
            std::fs::remove_file(&file).ok();
        }
    }
    Ok(db)
}

/// Gives the room up.
pub(crate) fn drop_it(layout: &Layout) {
    std::fs::remove_file(layout.data.join("ballast")).ok();
}
