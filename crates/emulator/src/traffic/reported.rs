//! Reports of programs, in their recorded form.

use serde_json::Value;

/// A report in which the paths of folders from environment variables are replaced by the variables' names. So
/// records do not depend on the paths of a machine.
pub fn without_folders(report: Value, environment: &[(String, String)]) -> Value {
    match report {
        Value::String(text) => Value::String(
            environment
                .iter()
                .filter(|(_, folder)| folder.len() > 1 && folder.starts_with('/'))
                .fold(text, |text, (name, folder)| text.replace(&**folder, &format!("${name}"))),
        ),
        Value::Array(values) => {
            values.into_iter().map(|value| without_folders(value, environment)).collect()
        }
        Value::Object(values) => values
            .into_iter()
            .map(|(name, value)| (name, without_folders(value, environment)))
            .collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::without_folders;

    #[test]
    fn report_names_no_folder_of_the_machine() {
        let environment = [("LULL_DATA", "/srv/data"), ("LULL_SEED", "7"), ("LULL_SCRATCH", "/")];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let said = json!({"logs": [{"log": "/srv/data/a.log", "lines": 7}], "cut": "17 at /"});
        let told = json!({"logs": [{"log": "$LULL_DATA/a.log", "lines": 7}], "cut": "17 at /"});
        assert_eq!(without_folders(said, &environment), told);
    }
}
