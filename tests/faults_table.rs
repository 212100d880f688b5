//! The tests that docs/faults.md names exist where it says they are.

use std::fs;
use std::path::Path;

/// What stands between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_fault_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(root.join("docs/faults.md")).unwrap();
    let (_, table) = document.split_once("| fault | test |").expect("the last table");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).collect();
    assert!(rows.len() >= 25, "{} rows", rows.len());
    for row in rows {
        let tests = row.trim_end_matches('|').rsplit('|').next().unwrap();
        let quoted = quoted(tests);
        let mut names = Vec::new();
        let mut found = 0;
        for word in quoted {
            if !word.contains('.') {
                names.push(word);
                continue;
            }
            let source = fs::read_to_string(root.join(word)).unwrap_or_else(|_| panic!("{word}"));
            for name in names.drain(..) {
                let there = source.contains(&format!("fn {name}("))
                    || source.contains(&format!(", {name})"))
                    || source.contains(&format!("int {name}("));
                assert!(there, "{name} is not in {word}");
                found += 1;
            }
        }
        assert!(found > 0 && names.is_empty(), "no test: {row}");
    }
}
