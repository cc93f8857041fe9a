//! Writer properties of format 1. They are part of the format: the same rows must give the same bytes
//! on every machine, so everything that a library version could default otherwise is set here.

use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{
    BloomFilterPosition, BloomFilterProperties, EnabledStatistics, WriterProperties,
    WriterPropertiesBuilder, WriterVersion,
};
use parquet::schema::types::ColumnPath;

use arrow::datatypes::{DataType, Field, SchemaRef};

use super::manifest::Layout;
use super::schema::{id, key_column, sort_columns};
use crate::{Error, Result, limits};

const CREATED_BY: &str = "stratagraph format 1";
const ZSTD_LEVEL: i32 = 3;
/// Bytes of a data page, of a page of vectors, and of a dictionary. A page of vectors is one block of
/// the verifying reader, so that a point read of a vector stays small.
const PAGE_BYTES: usize = 1024 * 1024;
const VECTOR_PAGE_BYTES: usize = 64 * 1024;
const DICTIONARY_BYTES: usize = 128 * 1024;
const STATISTICS_BYTES: usize = 64;
/// Share of absent keys that the bloom filter of a row group lets through.
const BLOOM_FPP: f64 = 0.01;

/// How a column is laid out.
enum Role {
    /// Keys: distinct and sorted, so no dictionary; a bloom filter where keys are looked up.
    Key,
    /// Row ids.
    Rid,
    /// Values without structure that compression could find: vectors and hashes.
    Opaque { page_bytes: usize },
    /// Values without an order that helps pruning.
    Unordered,
    /// Everything else.
    Plain,
}

fn role(field: &Field, property: u64) -> Role {
    match (property, field.data_type()) {
        (id::ROW_ID | id::ID, _) => Role::Key,
        (id::RID | id::SRC_RID | id::DST_RID, _) => Role::Rid,
        (_, DataType::FixedSizeList(item, _)) if item.data_type().is_floating() => Role::Opaque {
            page_bytes: VECTOR_PAGE_BYTES,
        },
        (_, DataType::FixedSizeBinary(_)) => Role::Opaque {
            page_bytes: PAGE_BYTES,
        },
        (_, DataType::Binary | DataType::List(_) | DataType::FixedSizeList(..)) => Role::Unordered,
        _ => Role::Plain,
    }
}

/// Options of the writer of a fragment of `layout`, or of a delta object (`None`: sorted by its first
/// column, which is its key).
pub(crate) fn writer_options(
    layout: Option<Layout>,
    schema: &SchemaRef,
    ids: &[u64],
) -> Result<ArrowWriterOptions> {
    let parquet = |source| Error::Parquet {
        path: "writer properties".to_owned(),
        source,
    };
    let leaves = ArrowSchemaConverter::new()
        .convert(schema)
        .map_err(parquet)?;
    let level = ZstdLevel::try_new(ZSTD_LEVEL).map_err(parquet)?;
    let sorted_by = layout.map_or(&[id::ROW_ID][..], sort_columns);
    let mut builder = base(Compression::ZSTD(level), sorting(sorted_by, ids));
    for leaf in 0..leaves.num_columns() {
        let root = leaves.get_column_root_idx(leaf);
        let (Some(property), Some(field)) = (ids.get(root), schema.fields().get(root)) else {
            continue;
        };
        let path = leaves.column(leaf).path().clone();
        if layout.is_some_and(|l| key_column(l) == *property) {
            let bloom = BloomFilterProperties::builder()
                .with_fpp(BLOOM_FPP)
                .with_max_ndv(limits::ROW_GROUP_ROWS as u64)
                .try_build()
                .map_err(parquet)?;
            builder = builder.set_column_bloom_filter_properties(path.clone(), bloom);
        }
        builder = lay_out(builder, path, &role(field, *property));
    }
    Ok(ArrowWriterOptions::new().with_properties(builder.build()))
}

/// Sort order over leaves; all sort columns are flat and stand before any nested column.
fn sorting(sorted_by: &[u64], ids: &[u64]) -> Vec<SortingColumn> {
    let leaf = |id: &u64| ids.iter().position(|i| i == id);
    let columns = sorted_by.iter().filter_map(leaf).map(|i| SortingColumn {
        column_idx: i as i32,
        descending: false,
        nulls_first: false,
    });
    columns.collect()
}

fn base(compression: Compression, sorting: Vec<SortingColumn>) -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_created_by(CREATED_BY.to_owned())
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_compression(compression)
        .set_max_row_group_row_count(None)
        .set_max_row_group_bytes(None)
        .set_data_page_row_count_limit(limits::PAGE_ROWS)
        .set_write_batch_size(limits::PAGE_ROWS)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_dictionary_enabled(true)
        .set_dictionary_page_size_limit(DICTIONARY_BYTES)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_write_page_header_statistics(false)
        .set_statistics_truncate_length(Some(STATISTICS_BYTES))
        .set_column_index_truncate_length(Some(STATISTICS_BYTES))
        .set_bloom_filter_position(BloomFilterPosition::End)
        .set_offset_index_disabled(false)
        .set_coerce_types(false)
        .set_write_path_in_schema(true)
        .set_content_defined_chunking(None)
        .set_sorting_columns(Some(sorting))
}

fn lay_out(
    builder: WriterPropertiesBuilder,
    path: ColumnPath,
    role: &Role,
) -> WriterPropertiesBuilder {
    let builder = match role {
        Role::Plain | Role::Unordered => builder,
        Role::Key | Role::Rid | Role::Opaque { .. } => {
            builder.set_column_dictionary_enabled(path.clone(), false)
        }
    };
    match role {
        Role::Plain => builder,
        Role::Unordered => builder.set_column_statistics_enabled(path, EnabledStatistics::None),
        Role::Key => builder.set_column_encoding(path, Encoding::PLAIN),
        Role::Rid => builder.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
        Role::Opaque { page_bytes } => builder
            .set_column_encoding(path.clone(), Encoding::PLAIN)
            .set_column_compression(path.clone(), Compression::UNCOMPRESSED)
            .set_column_data_page_size_limit(path.clone(), *page_bytes)
            .set_column_statistics_enabled(path, EnabledStatistics::None),
    }
}
