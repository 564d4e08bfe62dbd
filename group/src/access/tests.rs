use serde_json::json;

use super::*;

fn rules(yaml: &str) -> Arc<AccessRules> {
    Arc::new(AccessRules::new(serde_saphyr::from_str(yaml).unwrap()).unwrap())
}

fn identity(subject: &str, groups: &[&str], claims: &Value) -> Identity {
    Identity {
        issuer: "https://login.example".into(),
        subject: subject.into(),
        groups: groups.iter().map(ToString::to_string).collect(),
        claims: claims.as_object().unwrap().clone(),
    }
}

#[test]
fn what_no_rule_allows_is_not_allowed() {
    let rules = rules(
        "- {subjects: [ann], tools: [add, 'list_*']}\n- {groups: [staff], resources: ['demo://*'], prompts: [review]}\n",
    );
    let ann = rules
        .of_identity(&identity("ann", &[], &json!({})))
        .unwrap();
    assert!(ann.allows(Item::Tool("add")) && ann.allows(Item::Tool("list_all")));
    for other in [
        Item::Tool("remove"),
        Item::Resource("demo://a"),
        Item::Prompt("review"),
        Item::Prompt("add"),
    ] {
        assert!(!ann.allows(other), "{other:?}");
    }
    let both = rules.of_identity(&identity("ann", &["staff"], &json!({})));
    let both = both.unwrap();
    assert!(both.allows(Item::Tool("add")) && both.allows(Item::Resource("demo://a")));
    let nobody = rules.of_identity(&identity("bob", &["guests"], &json!({})));
    assert_eq!(nobody, None, "no rule is about bob");
}

#[test]
fn all_kinds_of_a_rule_are_asked_for_and_one_entry_of_each() {
    let rules = rules(
        "- issuer: https://login.example\n  subjects: ['*']\n  groups: [a, b]\n  claims: [{name: team, values: [red, blue]}, {name: realm.level, values: ['3']}]\n  tools: ['*']\n",
    );
    let good = json!({"team": ["green", "blue"], "realm": {"level": 3}});
    let fits = |who: &Identity| rules.of_identity(who).is_some();
    assert!(fits(&identity("x", &["b"], &good)));
    assert!(!fits(&identity("x", &["c"], &good)));
    assert!(!fits(&identity("x", &["b"], &json!({"team": "blue"}))));
    assert!(!fits(&identity(
        "x",
        &["b"],
        &json!({"team": "blue", "realm": {"level": [4]}})
    )));
    let elsewhere = Identity {
        issuer: "https://login.example/".into(),
        ..identity("x", &["b"], &good)
    };
    assert!(!fits(&elsewhere), "an issuer is compared letter by letter");
}

#[test]
fn scopes_are_words_and_names_with_dots_come_before_paths() {
    let rules = rules(
        "- {claims: [{name: scope, values: [tools]}, {name: 'https://example.com/roles', values: [op]}], tools: [x]}\n",
    );
    let claims = json!({"scope": "openid tools", "https://example.com/roles": ["op"]});
    assert!(rules.of_identity(&identity("x", &[], &claims)).is_some());
    let claims = json!({"scope": "openid toolsmith", "https://example.com/roles": ["op"]});
    assert!(rules.of_identity(&identity("x", &[], &claims)).is_none());
}

#[test]
fn keys_may_everything_until_a_rule_names_keys() {
    let tokens_only = rules("- {subjects: [ann], tools: [add]}\n");
    assert!(tokens_only.of_key(None).unwrap().is_everything());
    let rules = rules("- {keys: [ci], tools: [add]}\n- {subjects: ['*'], tools: [list]}\n");
    let ci = rules.of_key(Some("ci")).unwrap();
    assert!(ci.allows(Item::Tool("add")) && !ci.allows(Item::Tool("list")));
    assert_eq!(rules.of_key(Some("other")), None);
    assert_eq!(rules.of_key(None), None);
    // And a rule for keys says nothing of tokens.
    let token = rules.of_identity(&identity("ci", &[], &json!({}))).unwrap();
    assert!(!token.allows(Item::Tool("add")));
}

#[test]
fn all_faults_are_told_with_their_place() {
    let long = "x".repeat(MAX_ENTRY + 1);
    let texts = vec![
        RuleText {
            tools: vec!["add".into()],
            ..RuleText::default()
        },
        RuleText {
            subjects: vec!["a".into()],
            keys: vec!["b".into()],
            issuer: Some("https://login.example".into()),
            tools: vec![String::new(), long],
            ..RuleText::default()
        },
        RuleText {
            claims: vec![ClaimText::default()],
            ..RuleText::default()
        },
    ];
    let faults = AccessRules::new(texts).unwrap_err();
    let fields: Vec<_> = faults.iter().map(|fault| fault.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "[0]",
            "[1].keys",
            "[1].issuer",
            "[1].tools[0]",
            "[1].tools[1]",
            "[2].claims[0].name",
            "[2].claims[0].values",
            "[2]"
        ]
    );
    let many = vec![
        RuleText {
            keys: vec!["*".into()],
            tools: vec!["*".into()],
            ..RuleText::default()
        };
        MAX_RULES + 1
    ];
    assert_eq!(AccessRules::new(many).unwrap_err().len(), 1);
}

#[test]
fn keys_that_rules_name_and_that_are_not_there_are_found_with_their_place() {
    let of_keys = |names: &[&str]| RuleText {
        keys: names.iter().map(|name| (*name).to_owned()).collect(),
        tools: vec!["*".into()],
        ..RuleText::default()
    };
    let texts = vec![of_keys(&["*", "ci"]), of_keys(&["ci", "ghost"])];
    let rules = AccessRules::new(texts).unwrap();
    let unknown = rules.unknown_keys(|name| name == "ci");
    assert_eq!(unknown, [("rules[1].keys".to_owned(), "ghost")]);
}
