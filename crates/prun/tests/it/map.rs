//! Units from rows, through the whole binary.

use prun_testkit::env::TestEnv;

use crate::support::PRUN;

/// Answers with the JSON that stands in the prompt.
const PLAN: &str = r###"version = 1
dirty = "ignore"

[[map]]
name = "sizes"
rows = "rows.csv"
id = "key"
schema = "schema.json"
mode = "read"
checkout = false
prompt = '''
{{ question }}
ANSWER {"size": {{ size }}}
'''
command = '''
text=$(sed -n 's/^ANSWER //p')
printf '# %s result\nConclusion: done\nFiles: none\nOpen items: none\nVerification: none\n\n%s\n' \
    "$PRUN_UNIT" "$text" > "$PRUN_RESULT"
'''
"###;

const SCHEMA: &str = r#"{"type": "object", "required": ["size"], "properties": {"size": {"type": "integer"}}}"#;

fn place(rows: &str) -> TestEnv {
    let env = TestEnv::new(PRUN);
    env.write("rows.csv", rows);
    env.write("schema.json", SCHEMA);
    env.write("prun.toml", PLAN);
    env
}

#[test]
fn rows_become_units_and_results_become_rows_again() {
    let env = place("key,question,size\none,\"How, big?\",1\ntwo,What?,2\nbad,Why?,\"\"\"x\"\"\"\n");
    let ran = env.prun("run");
    assert_eq!(ran.code, 0, "{ran}");
    assert!(env.prun("brief one").stdout.contains("How, big?"));
    let exported = env.prun("result --export out.csv");
    assert_eq!(exported.code, 3, "{exported}");
    assert!(exported.stderr.contains("bad: /size: "), "{exported}");
    let text = env.read("out.csv");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "unit,key,question,size,outcome,conclusion,result,fault");
    assert_eq!(lines[1], "one,one,\"How, big?\",1,succeeded,done,\"{\"\"size\"\":1}\",");
    assert!(lines[3].contains("is not of type"), "{text}");
    let json = env.prun("result --export - --map sizes");
    let second: serde_json::Value = serde_json::from_str(json.stdout.lines().nth(1).unwrap()).unwrap();
    assert_eq!((&second["result"]["size"], &second["fault"]), (&2.into(), &serde_json::Value::Null));
    assert_eq!(env.prun("result --export - --map other").code, 2);
    assert_eq!(env.prun("result --export out.txt").code, 2);
}

#[test]
fn bad_rows_are_told_before_anything_starts() {
    let env = place("key,question,size\none,q,1\none,q,1\n-x,q,1\n");
    let checked = env.prun("check");
    assert_eq!(checked.code, 2, "{checked}");
    assert!(checked.stderr.contains("the map sizes, line 3: the id one is taken by line 2"), "{checked}");
    assert!(checked.stderr.contains("line 4: "), "{checked}");
    assert_eq!(env.prun("run").code, 2);
    assert!(env.run_ids().is_empty());
}

#[test]
fn a_result_of_a_unit_that_failed_is_exported_with_its_fault_and_no_column_is_lost() {
    let env = place("key,question,size,outcome\none,q,1,mine\ntwo,q,2,mine\n");
    env.write(
        "prun.toml",
        PLAN.replace("command = '''", "retries = 0\nverify = '[ \"$PRUN_UNIT\" = one ]'\ncommand = '''"),
    );
    assert_eq!(env.prun("run").code, 3);
    let exported = env.prun("result --export -");
    assert_eq!(exported.code, 3, "{exported}");
    let rows: Vec<serde_json::Value> =
        exported.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&rows[0]["outcome"], &rows[0]["fault"]), (&"succeeded".into(), &serde_json::Value::Null));
    assert_eq!((&rows[1]["row.outcome"], &rows[1]["result"]["size"]), (&"mine".into(), &2.into()));
    assert!(rows[1]["fault"].as_str().unwrap().starts_with("it is failed"), "{exported}");
    assert_eq!(env.prun("accept two -m looked").code, 0);
    assert_eq!(env.prun("result --export -").code, 0);
}
