//! Stores of earlier releases.

use redb::TableDefinition;

use super::*;

const HEAD: TableDefinition<'static, (), &[u8]> = TableDefinition::new("head");

/// Makes the store claim this format.
fn set_format(folder: &FilePath, format: u16) {
    let database = Builder::new().open(folder.join("state.redb")).expect("a database");
    let transaction = database.begin_write().expect("a disk");
    {
        let mut table = transaction.open_table(HEAD).expect("a table");
        let mut row = table.get(()).expect("a disk").expect("a head").value().to_vec();
        row[..2].copy_from_slice(&format.to_le_bytes());
        table.insert((), &row[..]).expect("a disk");
    }
    transaction.commit().expect("a disk");
}

/// Format 1 has the same bytes, but for modes other than 0644 and 0755. Format 2 has only names in UTF-8.
#[test]
fn store_of_an_earlier_format_is_opened_and_written() {
    let folder = TempDir::new().expect("a folder");
    Store::create_origin(folder.path(), settings(), [7; 32]).expect("an empty folder");
    let (mut origin, mut store) = open_in(folder.path(), 1);
    write(&mut origin, &mut store, "a", b"before".to_vec());
    write(&mut origin, &mut store, "b\\x41", b"a backslash".to_vec());
    let before = origin.image().clone();
    drop(store);
    set_format(folder.path(), 1);
    let (mut origin, mut store) = open_in(folder.path(), 2);
    assert_eq!(origin.image().objects, before.objects);
    assert_eq!(origin.last(), before.last());
    let mode = Mode::new(0o600);
    let put = Put::Body(payload(b"after".to_vec()), Metadata { mode, ..Metadata::default() });
    let named = Path::from_bytes(b"a\xff\\/\n").expect("a path");
    let changes = [(path("a"), put.clone()), (named.clone(), put)].into();
    origin.handle_transaction(at(100), TransactionId(1), Transaction { changes });
    pump(&mut origin, &mut store).expect("a disk that does not fail");
    drop(store);
    let (origin, store) = open_in(folder.path(), 3);
    for path in [path("a"), named] {
        assert_eq!(origin.image().objects[&path].content.metadata.mode, mode);
    }
    assert!(origin.image().objects.contains_key(&path("b\\x41")));
    drop(store);
    // A later release may have written data that this one cannot read.
    set_format(folder.path(), 4);
    let later = Store::<OriginState>::open(folder.path(), settings(), at(4).wall);
    assert!(matches!(later, Err(StoreError::Other { .. })), "{later:?}");
}
