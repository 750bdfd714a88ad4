//! A kubeconfig that is wrong: it holds credentials, so it is named with a line and a reason, and nothing in it is shown.

use super::{Outcome, directory, helio_with, path};
use std::fs;

/// What must not be printed, in every place where something is wrong with it.
const SECRET: &str = "SuperSecretToken123";

/// A kubeconfig with this cluster and this user.
fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts:\n- name: x\n  context: {{cluster: c, user: u}}\n\
         clusters:\n- name: c\n  cluster: {cluster}\nusers:\n- name: u\n  user: {user}\n"
    )
}

const CLUSTER: &str = "{server: 'https://127.0.0.1:1'}";

/// With all that a log can say.
fn helio(args: &[&str], kubeconfig: &str) -> Outcome {
    let nothing = [("KUBERNETES_SERVICE_HOST", ""), ("HTTPS_PROXY", ""), ("https_proxy", "")];
    let environment = [&[("KUBECONFIG", kubeconfig), ("HELIO_LOG_LEVEL", "trace")], &nothing[..]];
    helio_with(args, &environment.concat())
}

/// The error, which is one line, and neither it nor the log nor the result have the secret.
fn error(outcome: &Outcome) -> &str {
    let Outcome { code, stdout, stderr } = outcome;
    assert!(!stdout.contains(SECRET) && !stderr.contains(SECRET), "{stdout}{stderr}");
    assert_eq!((*code, stdout.as_str()), (Some(1), ""), "{stderr}");
    let last = stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: "), "{stderr}");
    last
}

#[test]
fn what_is_wrong_with_a_kubeconfig_is_said_without_what_is_in_it() {
    let user = |user: &str| kubeconfig(CLUSTER, user);
    let with_key = |key: &str| user(&format!("{{client-certificate-data: YQ==, {key}}}"));
    // Runs a shell that prints this, and ends so.
    let plugin = |script: &str| {
        let head = "apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never";
        let env = format!("env: [{{name: PASSWORD, value: {SECRET}}}]");
        user(&format!(
            "{{exec: {{{head}, command: /bin/sh, args: [-c, {script:?}, {SECRET}], {env}}}}}"
        ))
    };
    let cases = [
        // YAML that is none, in several ways; and a kubeconfig that is none.
        (
            format!(
                "clusters:\n- name: c\n  cluster: {{server: x\nusers:\n- user: {{token: {SECRET}}}\n"
            ),
            " line ",
        ),
        (format!("users:\n- user: {{token: \"{SECRET}}}\n"), " line "),
        (format!("users:\n- user:\n\ttoken: {SECRET}\n"), " line "),
        (format!("users:\n- user: {{token: *{SECRET}}}\n"), " line "),
        (format!("users:\n- user: {{token: !{SECRET} {SECRET}}}\n{SECRET}"), " line "),
        (format!("%{SECRET} {SECRET}\n"), "YAML"),
        (format!("{SECRET}\n"), " line 1: "),
        (user(&format!("{{{SECRET}: 1, {SECRET}: 2}}")), " line 12: "),
        // Values of the wrong type.
        (user(SECRET), "mapping"),
        (user(&format!("{{token: [{SECRET}]}}")), "string"),
        (user(&format!("{{token: {{{SECRET}: {SECRET}}}}}")), "string"),
        (user(&format!("{{as-groups: {SECRET}}}")), "sequence"),
        (user(&format!("{{exec: {{interactiveMode: {SECRET}}}}}")), " line "),
        (kubeconfig(&format!("{{insecure-skip-tls-verify: {SECRET}}}"), "{}"), "bool"),
        (format!("users:\n- user: {{token: {SECRET}}}\n"), "name"),
        // Values that cannot be used.
        (format!("current-context: {SECRET}\n"), "current-context"),
        (
            format!("users: []\nextensions: [{{name: {SECRET}, extension: {SECRET}}}]\n"),
            "current-context",
        ),
        (
            kubeconfig(CLUSTER, "{}").replace("cluster: c,", &format!("cluster: {SECRET},")),
            "cluster",
        ),
        (kubeconfig(&format!("{{server: 'https://me:{SECRET} x'}}"), "{}"), "server"),
        (
            kubeconfig(&format!("{{server: 'https://x', proxy-url: 'ftp://me:{SECRET}@x'}}"), "{}"),
            "proxy",
        ),
        (
            kubeconfig(
                &format!("{{server: 'https://x', proxy-url: 'http://me:{SECRET}@x'}}"),
                "{}",
            ),
            "proxy",
        ),
        (
            kubeconfig(
                &format!("{{server: 'https://x', certificate-authority-data: {SECRET}!}}"),
                "{}",
            ),
            "certificate-authority-data",
        ),
        (
            kubeconfig(&format!("{{server: 'https://x', certificate-authority: {SECRET}}}"), "{}"),
            "certificate-authority",
        ),
        (with_key(&format!("client-key-data: {SECRET}!")), "client-key-data"),
        // Somebody took the name of a file for the file.
        (with_key(&format!("client-key: {SECRET}")), "client-key"),
        (
            user(&format!("{{client-key-data: YQ==, client-certificate: {SECRET}}}")),
            "client-certificate",
        ),
        (user(&format!("{{tokenFile: {SECRET}}}")), "tokenFile"),
        (user(&format!("{{token: \"{SECRET}\\n\"}}")), "token"),
        (user(&format!("{{auth-provider: {{name: {SECRET}}}}}")), "auth-provider"),
        (
            user(&format!(
                "{{auth-provider: {{name: gcp, config: {{cmd-path: /bin/echo, cmd-args: {SECRET}, token-key: '{{.x}}'}}}}}}"
            )),
            "auth-provider",
        ),
        (user(&format!("{{exec: {{command: /{SECRET}}}}}")), "exec plugin"),
        // What a plugin prints.
        (plugin("echo $0; echo $0 >&2; exit 3"), "exec plugin ended with exit status: 3"),
        (plugin("echo '{\"status\": {\"token\": \"'$0'\"'"), "exec plugin"),
        (plugin("echo '{\"status\": {\"token\": [\"'$0'\"]}}'"), "exec plugin"),
        (
            plugin("echo '{\"status\": {\"token\": \"'$0'\", \"expirationTimestamp\": \"'$0'\"}}'"),
            "exec plugin",
        ),
    ];
    let scratch = directory(&[]);
    let file = path(&scratch, "kubeconfig");
    for (text, expected) in cases {
        fs::write(&file, &text).unwrap();
        for args in [&["status", "--kubeconfig", &file][..], &["proxies"], &["collect"]] {
            let outcome = helio(args, &file);
            let error = error(&outcome);
            assert!(
                error.contains(&file) && error.contains(expected),
                "{expected}: {error}\n{text}"
            );
        }
        let outcome = helio(&["secrets", "--key-ring", "keys", "--kubeconfig", &file], &file);
        let error = error(&outcome);
        assert!(error.contains(&file) && error.contains(expected), "{expected}: {error}\n{text}");
    }
}

#[test]
fn of_several_kubeconfigs_the_one_that_is_wrong_is_named() {
    let broken = format!("users:\n- name: u\n  user: {{token: {SECRET}\n");
    let good = kubeconfig(CLUSTER, &format!("{{token: {SECRET}}}"));
    let scratch = directory(&[("good", &good), ("broken", &broken)]);
    let (good, broken) = (path(&scratch, "good"), path(&scratch, "broken"));
    for all in [format!("{good}:{broken}"), format!("{broken}:{good}"), format!(":{good}:{broken}")]
    {
        let outcome = helio(&["status"], &all);
        let error = error(&outcome);
        assert!(error.contains(&format!("{broken} line 3: ")) && !error.contains(&good), "{error}");
    }
    // Of no single file.
    let outcome = helio(&["status", "--kube-context", "other"], &good);
    assert!(error(&outcome).contains(&format!("{good}: it has no context \"other\"")));
}

#[test]
fn a_kubeconfig_that_is_not_there_is_said_once() {
    let scratch = directory(&[]);
    let missing = path(&scratch, "missing");
    for args in [&["status", "--kubeconfig", &missing][..], &["status"]] {
        let outcome = helio(args, &missing);
        let error = error(&outcome);
        let reason = format!("{missing}: No such file or directory (os error 2)");
        assert!(error.ends_with(&reason), "{error}");
        assert_eq!(error.matches("No such file").count(), 1, "{error}");
    }
}

#[test]
fn credentials_are_not_logged() {
    let scratch = directory(&[]);
    let file = path(&scratch, "kubeconfig");
    let users = [
        format!("{{token: {SECRET}}}"),
        format!("{{username: me, password: {SECRET}}}"),
        format!("{{tokenFile: {}}}", path(&scratch, "token")),
    ];
    fs::write(path(&scratch, "token"), SECRET).unwrap();
    for user in users {
        let cluster = format!("{{server: 'http://me:{SECRET}@127.0.0.1:1'}}");
        fs::write(&file, kubeconfig(&cluster, &user)).unwrap();
        let outcome = helio(&["status", "--kubeconfig", &file], &file);
        let error = error(&outcome);
        assert!(error.contains("the pods of the namespace"), "{error}");
        assert!(outcome.stderr.contains("http.url"), "the log does not say what is asked");
    }
}

#[test]
fn a_plugin_that_fails_when_it_runs_again_is_not_quoted() {
    let scratch = directory(&[]);
    let (file, calls) = (path(&scratch, "kubeconfig"), path(&scratch, "calls"));
    // Its tokens have expired, so that the client asks for another before each request; while it is made, it asks three times.
    let script = format!(
        "echo >> {calls}; if [ $(wc -l < {calls}) -gt 3 ]; then echo {SECRET}; echo {SECRET} >&2; exit 4; fi; \
         echo '{{\"status\": {{\"token\": \"{SECRET}\", \"expirationTimestamp\": \"2020-01-01T00:00:00Z\"}}}}'"
    );
    let exec = format!("{{interactiveMode: Never, command: /bin/sh, args: [-c, {script:?}]}}");
    fs::write(&file, kubeconfig(CLUSTER, &format!("{{exec: {exec}}}"))).unwrap();
    let outcome = helio(&["status", "--kubeconfig", &file], &file);
    let error = error(&outcome);
    assert!(error.contains("the pods of the namespace"), "it failed before: {error}");
    let expected = format!("{file}: its exec plugin ended with exit status: 4");
    assert!(error.contains(&expected), "{error}");
}
