//! Writes an archive, one part after the other. Memory is bounded by a row group.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Seek as _};
use std::ops::ControlFlow;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as PhysicalType, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

use super::ArchiveError;
use super::manifest::{ArchiveManifest, ArchivePart, MANIFEST_FORMAT, VERSION};
use super::storage::ArchiveStorage;
use crate::intake::RecordIntake;
use crate::intake::trace_records::TraceRecords;
use crate::records::ReadSummary;

/// Maximum number of shards of a day. With more, files get small.
pub const MAX_SHARDS: u32 = 4096;
/// Maximum rows and bytes of a row group.
const MAX_GROUP_ROWS: usize = 20_000;
const MAX_GROUP_BYTES: usize = 32 << 20;

/// Writes an archive to a new or empty location, or completes one whose writing was interrupted.
#[derive(Debug)]
pub struct ArchiveWriter {
    storage: Arc<dyn ArchiveStorage>,
    manifest: ArchiveManifest,
    open: Option<OpenPart>,
    /// Parts of an interrupted run that were not written anew yet, with their sizes.
    leftover_parts: BTreeMap<String, u64>,
}

/// The part that is being written.
struct OpenPart {
    part: ArchivePart,
    writer: SerializedFileWriter<BufWriter<File>>,
    rows: Vec<ArchiveRow>,
    row_bytes: usize,
}

impl std::fmt::Debug for OpenPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenPart").field("part", &self.part).finish_non_exhaustive()
    }
}

struct ArchiveRow {
    group_id: String,
    trace_id: String,
    project: Option<String>,
    start_us: i64,
    records: i64,
    record: Vec<u8>,
}

impl ArchiveWriter {
    pub fn create(storage: Arc<dyn ArchiveStorage>, shards: u32) -> Result<ArchiveWriter, ArchiveError> {
        if storage.read_manifest()?.is_some() {
            return Err(ArchiveError::Exists { path: storage.describe_path("") });
        }
        let mut leftover_parts = BTreeMap::new();
        let mut is_foreign = false;
        storage.visit_objects(&mut |object| {
            is_foreign |= !object.is_part();
            leftover_parts.insert(object.path, object.bytes);
            if is_foreign { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if is_foreign {
            return Err(ArchiveError::NotEmpty { path: storage.describe_path("") });
        }
        let manifest = ArchiveManifest {
            format: MANIFEST_FORMAT.to_owned(),
            version: VERSION,
            shards: shards.clamp(1, MAX_SHARDS),
            traces: 0,
            records: 0,
            record_bytes: 0,
            parts: Vec::new(),
        };
        Ok(ArchiveWriter { storage, manifest, open: None, leftover_parts })
    }

    /// Writes everything that an intake has read, and returns the manifest. The archive is complete afterwards.
    /// Without any trace, no archive is written.
    pub fn write(mut self, intake: RecordIntake<'_>) -> Result<(ArchiveManifest, ReadSummary), ArchiveError> {
        let shards = self.manifest.shards;
        let mut failure = None;
        let summary = intake.visit_groups(
            |first, start_ns| (format_date(start_ns), choose_shard(first.0, shards), first),
            &mut |trace| {
                self.add_trace(&trace).map_err(|error| {
                    failure = Some(error);
                    io::Error::other("the archive cannot be written")
                })
            },
        );
        if let Some(error) = failure {
            return Err(error);
        }
        let summary = summary.map_err(|source| self.io_error("", source))?;
        self.close_part()?;
        // Archives do not change, so an empty one would only take the location.
        if self.manifest.traces == 0 {
            return Ok((self.manifest, summary));
        }
        // Other engines read all files as one table.
        for path in self.leftover_parts.keys() {
            self.storage.remove_part(path)?;
        }
        let text = serde_json::to_vec_pretty(&self.manifest).map_err(|error| self.io_error("", error.into()))?;
        self.storage.publish_manifest(&text)?;
        Ok((self.manifest, summary))
    }

    /// Traces arrive sorted by date, shard and group.
    fn add_trace(&mut self, trace: &TraceRecords<'_>) -> Result<(), ArchiveError> {
        let (date, shard) = (format_date(trace.group_start_ns), choose_shard(trace.group.0, self.manifest.shards));
        let is_same = self.open.as_ref().is_some_and(|open| open.part.date == date && open.part.shard == shard);
        if !is_same {
            self.close_part()?;
            self.open = Some(self.open_part(date, shard)?);
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        let record = trace.encode();
        open.part.traces += 1;
        open.part.records += trace.record_count();
        self.manifest.record_bytes += record.len() as u64;
        open.row_bytes += record.len();
        open.rows.push(ArchiveRow {
            group_id: trace.group.to_string(),
            trace_id: trace.id.to_string(),
            project: trace.project.map(str::to_owned),
            start_us: i64::try_from(trace.start_ns / 1_000).unwrap_or(i64::MAX),
            records: i64::try_from(trace.record_count()).unwrap_or(i64::MAX),
            record,
        });
        if open.rows.len() >= MAX_GROUP_ROWS || open.row_bytes >= MAX_GROUP_BYTES {
            let path = self.storage.describe_path(&open.part.path);
            open.write_row_group().map_err(|error| ArchiveError::Parquet { path, reason: error.to_string() })?;
        }
        Ok(())
    }

    fn open_part(&self, date: String, shard: u32) -> Result<OpenPart, ArchiveError> {
        let name = format!("spans/v{VERSION}/date={date}/shard={shard:02}/part-0.parquet");
        let file = self.storage.create_part(&name)?;
        let bad = |error: ParquetError| ArchiveError::Parquet { path: name.clone(), reason: error.to_string() };
        let level = ZstdLevel::try_new(3).map_err(bad)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            // Rows are whole traces: a dictionary of them costs memory and finds nothing.
            .set_column_dictionary_enabled("record".into(), false)
            .set_column_bloom_filter_enabled("trace_id".into(), true)
            .build();
        let schema = Arc::new(build_schema().map_err(bad)?);
        let writer = SerializedFileWriter::new(BufWriter::new(file), schema, Arc::new(properties)).map_err(bad)?;
        let part =
            ArchivePart { path: name.clone(), date, shard, traces: 0, records: 0, bytes: 0, checksum: String::new() };
        Ok(OpenPart { part, writer, rows: Vec::new(), row_bytes: 0 })
    }

    fn close_part(&mut self) -> Result<(), ArchiveError> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let path = self.storage.describe_path(&open.part.path);
        let bad = |error: ParquetError| ArchiveError::Parquet { path: path.clone(), reason: error.to_string() };
        open.write_row_group().map_err(bad)?;
        let buffer = open.writer.into_inner().map_err(bad)?;
        let file = buffer.into_inner().map_err(io::IntoInnerError::into_error);
        let summed = file.and_then(|mut file| checksum_file(&mut file).map(|sum| (file, sum)));
        let (file, (bytes, checksum)) = summed.map_err(|error| self.io_error(&open.part.path, error))?;
        let part = ArchivePart { bytes, checksum, ..open.part };
        let stored_bytes = self.leftover_parts.remove(&part.path);
        self.storage.store_part(&part, file, stored_bytes)?;
        self.manifest.traces += part.traces;
        self.manifest.records += part.records;
        self.manifest.parts.push(part);
        Ok(())
    }

    fn io_error(&self, path: &str, source: io::Error) -> ArchiveError {
        ArchiveError::Io { path: self.storage.describe_path(path), source }
    }
}

impl OpenPart {
    fn write_row_group(&mut self) -> Result<(), ParquetError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.rows);
        self.row_bytes = 0;
        let text = |value: &str| ByteArray::from(value.as_bytes().to_vec());
        let mut group = self.writer.next_row_group()?;
        let ids: Vec<ByteArray> = rows.iter().map(|row| text(&row.group_id)).collect();
        write_column::<ByteArrayType>(&mut group, &ids, None)?;
        let ids: Vec<ByteArray> = rows.iter().map(|row| text(&row.trace_id)).collect();
        write_column::<ByteArrayType>(&mut group, &ids, None)?;
        let levels: Vec<i16> = rows.iter().map(|row| i16::from(row.project.is_some())).collect();
        let projects: Vec<ByteArray> = rows.iter().filter_map(|row| row.project.as_deref().map(text)).collect();
        write_column::<ByteArrayType>(&mut group, &projects, Some(&levels))?;
        let starts: Vec<i64> = rows.iter().map(|row| row.start_us).collect();
        write_column::<Int64Type>(&mut group, &starts, None)?;
        let counts: Vec<i64> = rows.iter().map(|row| row.records).collect();
        write_column::<Int64Type>(&mut group, &counts, None)?;
        let records: Vec<ByteArray> = rows.into_iter().map(|row| ByteArray::from(row.record)).collect();
        write_column::<ByteArrayType>(&mut group, &records, None)?;
        group.close()?;
        Ok(())
    }
}

fn write_column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, BufWriter<File>>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("more columns than the schema has".to_owned()));
    };
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

/// `record` is what `gradus.spark.grade` grades, and `group_id` its key.
fn build_schema() -> Result<Type, ParquetError> {
    let text = || (PhysicalType::BYTE_ARRAY, Some(LogicalType::String));
    let columns = [
        ("group_id", text(), Repetition::REQUIRED),
        ("trace_id", text(), Repetition::REQUIRED),
        ("project", text(), Repetition::OPTIONAL),
        // Spark reads no nanoseconds.
        (
            "start_time",
            (PhysicalType::INT64, Some(LogicalType::timestamp(true, TimeUnit::MICROS))),
            Repetition::REQUIRED,
        ),
        ("records", (PhysicalType::INT64, None), Repetition::REQUIRED),
        ("record", (PhysicalType::BYTE_ARRAY, None), Repetition::REQUIRED),
    ];
    let fields = columns.into_iter().map(|(name, (physical, logical), repetition)| {
        let column = Type::primitive_type_builder(name, physical).with_repetition(repetition);
        column.with_logical_type(logical).build().map(Arc::new)
    });
    Type::group_type_builder("traces").with_fields(fields.collect::<Result<_, _>>()?).build()
}

/// Length and BLAKE3 of a file, which is left at its beginning.
pub(super) fn checksum_file(file: &mut File) -> io::Result<(u64, String)> {
    let mut hasher = blake3::Hasher::new();
    file.rewind()?;
    let bytes = io::copy(file, &mut hasher)?;
    file.rewind()?;
    Ok((bytes, hasher.finalize().to_hex().to_string()))
}

/// The day of a time, in UTC.
fn format_date(start_ns: u64) -> String {
    let second = i64::try_from(start_ns / 1_000_000_000).unwrap_or(0);
    jiff::Timestamp::from_second(second).unwrap_or_default().strftime("%Y-%m-%d").to_string()
}

/// Trace ids are random in most of their bits, but some senders put a time into the first ones.
fn choose_shard(group: u128, shards: u32) -> u32 {
    let digest = blake3::hash(&group.to_be_bytes());
    let mut first = [0; 4];
    first.copy_from_slice(&digest.as_bytes()[..4]);
    u32::from_be_bytes(first) % shards.max(1)
}
