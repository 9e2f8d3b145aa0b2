//! Fetches a result under its limits, and leaves the connection at the end of its statement.

use std::pin::{Pin, pin};

use futures_util::TryStreamExt as _;
use spillgate_connector::{DatabaseError, Failure, ReadLimits, Scrub, Written};
use spillgate_model::RowsBuilder;
use spillgate_model::rows::RowEnd;
use tokio::time::timeout;
use tokio_postgres::{Error, RowStream};

use crate::cancel::Cancel;
use crate::failure;
use crate::gauge::Gauge;
use crate::prepared::Prepared;
use crate::session::GRACE;

/// Bytes of unwanted rows that are read away because that costs less than a cancel request.
const CHEAP_BYTES: usize = 64 * 1024;

/// What reading a result takes beside the result.
pub(crate) struct Fetching<'a> {
    pub(crate) prepared: &'a Prepared,
    pub(crate) cancel: &'a Cancel,
    pub(crate) gauge: &'a Gauge,
    pub(crate) in_transaction: bool,
    pub(crate) scrub: &'a Scrub,
}

impl Fetching<'_> {
    /// Reads rows up to the limits. What the server still has is cancelled, or in a transaction, which a cancel would spoil,
    /// read and thrown away.
    pub(crate) async fn run(&self, stream: RowStream, limits: ReadLimits) -> Result<Written, DatabaseError> {
        let mut stream = pin!(stream);
        let mut rows = RowsBuilder::new(self.prepared.shape.columns.clone(), limits.max_rows, limits.max_bytes);
        let broke_off = self.fill(stream.as_mut(), &mut rows).await?;
        if broke_off && (self.in_transaction || rows.is_empty()) {
            return Err(self.too_large(limits));
        }
        let mut rows = rows.finish();
        if broke_off {
            // The rows before it are whole, and nothing but the session is lost.
            rows.set_truncated(true);
        }
        Ok(Written { affected: stream.rows_affected().unwrap_or(0), rows })
    }

    /// Takes rows up to the limits; true if the stream broke off at a row that is too long to be held.
    async fn fill(&self, mut stream: Pin<&mut RowStream>, rows: &mut RowsBuilder) -> Result<bool, DatabaseError> {
        let failed = |error: Error| failure::of_statement(&error, true, self.scrub);
        let cut = loop {
            match stream.try_next().await {
                Ok(Some(row)) => match self.prepared.push(&row, rows) {
                    Ok(()) if rows.end_row() == RowEnd::More => {}
                    result => break result,
                },
                Ok(None) => return Ok(false),
                Err(_) if self.gauge.passed() => return Ok(true),
                Err(error) => return Err(failed(error)),
            }
        };
        let skipped = if self.in_transaction { read_away(stream).await } else { skip_rest(stream, self.cancel).await };
        // A value that cannot be given says more than what came after it.
        cut?;
        match skipped {
            Err(error) if !self.gauge.passed() => Err(failed(error)),
            // A transaction is lost with its session.
            skipped => Ok(skipped.is_err() && self.in_transaction),
        }
    }

    fn too_large(&self, limits: ReadLimits) -> DatabaseError {
        // Only its length was seen; with more than one column, which of them it was is not known.
        let names: Vec<&str> = self.prepared.shape.columns.iter().map(|column| &*column.name).collect();
        let column = names.join(", ");
        let detail = format!("a row of {column} is larger than {} bytes", limits.max_bytes);
        DatabaseError::new(Failure::ResultTooLarge { column: column.into() }, detail.clone(), detail)
    }
}

/// To its end, however far that is.
async fn read_away(mut stream: Pin<&mut RowStream>) -> Result<(), Error> {
    while stream.try_next().await?.is_some() {}
    Ok(())
}

/// Reads on to the end of the statement: at once where it is near, else after a cancel.
async fn skip_rest(mut stream: Pin<&mut RowStream>, cancel: &Cancel) -> Result<(), Error> {
    let near = async {
        let mut skipped = 0;
        while let Some(row) = stream.as_mut().try_next().await? {
            skipped += row.raw_size_bytes();
            if skipped > CHEAP_BYTES {
                return Ok(false);
            }
        }
        Ok(true)
    };
    if let Ok(result) = timeout(GRACE, near).await
        && result?
    {
        return Ok(());
    }
    // Not delivered: the statement ends by itself, or by the server's own limit; it is read away meanwhile.
    cancel.deliver().await;
    loop {
        match stream.as_mut().try_next().await {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(()),
            Err(error) if error.code().is_some() => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
