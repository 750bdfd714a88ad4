use super::*;
use heliograph_gateway::objects;

fn service(name: &str, port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: {port}}}]}}\n---\n"
    )
}

/// Names its object, and does not decode.
fn broken_service(name: &str) -> String {
    format!("apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: [1]\n---\n")
}

const SYNTAX_ERROR: &str = "apiVersion: v1\nkind: [\n---\n";

fn contents(text: &str) -> FoundFile {
    FoundFile::Documents(objects::parse(text))
}

/// The events as `NAME GENERATION` or `-NAME`, and the remarks as text.
fn in_words(difference: Difference) -> (Vec<String>, Vec<String>) {
    let events = difference.events.into_iter().map(|event| match event {
        Event::Applied(object) => {
            let generation = object.metadata().generation.unwrap_or_default();
            format!("{} {generation}", object.key().name.name)
        }
        Event::Deleted(key) => format!("-{}", key.name.name),
    });
    (events.collect(), difference.remarks.iter().map(ToString::to_string).collect())
}

fn update(catalogue: &mut Catalogue, files: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
    let files = files.iter().map(|(path, text)| (Arc::from(Path::new(path)), contents(text)));
    in_words(catalogue.update(files))
}

fn events(catalogue: &mut Catalogue, files: &[(&str, &str)]) -> Vec<String> {
    let (events, remarks) = update(catalogue, files);
    assert_eq!(remarks, [""; 0]);
    events
}

#[test]
fn only_what_changed_is_an_event_and_its_generation_counts() {
    let mut catalogue = Catalogue::default();
    let text = service("a", 80) + &service("b", 80);
    assert_eq!(events(&mut catalogue, &[("f", &text)]), ["a 1", "b 1"]);
    assert_eq!(events(&mut catalogue, &[("f", &text)]), [""; 0]);
    let text = service("b", 81) + &service("a", 80);
    assert_eq!(events(&mut catalogue, &[("f", &text)]), ["b 2"]);
    assert_eq!(events(&mut catalogue, &[("f", &service("b", 81))]), ["-a"]);
    assert_eq!(events(&mut catalogue, &[("f", "")]), ["-b"]);
    assert_eq!(events(&mut catalogue, &[("f", &service("b", 81))]), ["b 1"]);
}

#[test]
fn a_generation_in_the_file_is_not_ours() {
    let mut catalogue = Catalogue::default();
    let text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a, generation: 7}\n";
    assert_eq!(events(&mut catalogue, &[("f", text)]), ["a 1"]);
    assert_eq!(events(&mut catalogue, &[("f", text)]), [""; 0]);
}

#[test]
fn an_object_that_does_not_decode_keeps_its_own_version_only() {
    let mut catalogue = Catalogue::default();
    let text = service("a", 80) + &service("b", 80) + &service("c", 80);
    update(&mut catalogue, &[("f", &text)]);
    let text = broken_service("a") + &service("b", 81);
    let (events, remarks) = update(&mut catalogue, &[("f", &text)]);
    assert_eq!(events, ["b 2", "-c"], "a stays, b changed, c is gone");
    assert_eq!(remarks.len(), 1);
    assert!(remarks[0].starts_with("f line 4: Service default/a: "), "{}", remarks[0]);
    let (events, remarks) =
        update(&mut catalogue, &[("f", &(service("a", 82) + &service("b", 81)))]);
    assert_eq!((events, remarks), (vec!["a 2".to_owned()], vec![]));
    assert_eq!(catalogue.remarks().iter().count(), 0);
}

#[test]
fn a_syntax_error_keeps_what_the_file_held_and_harms_no_other_document() {
    let mut catalogue = Catalogue::default();
    update(&mut catalogue, &[("f", &(service("a", 80) + &service("b", 80)))]);
    let text = service("b", 81) + SYNTAX_ERROR;
    let (events, remarks) = update(&mut catalogue, &[("f", &text)]);
    assert_eq!(events, ["b 2"]);
    assert_eq!(remarks.len(), 1);
    let (events, remarks) = update(&mut catalogue, &[("f", &text)]);
    assert_eq!((events, remarks), (vec![], vec![]), "the same is reported once");
    assert_eq!(events_of_removal(&mut catalogue, "f"), ["-a", "-b"]);
    assert_eq!(catalogue.remarks().iter().count(), 0);
}

fn events_of_removal(catalogue: &mut Catalogue, path: &str) -> Vec<String> {
    in_words(catalogue.update([(Arc::from(Path::new(path)), FoundFile::Gone)])).0
}

#[test]
fn an_unreadable_file_keeps_what_it_held() {
    let mut catalogue = Catalogue::default();
    update(&mut catalogue, &[("f", &service("a", 80))]);
    let path: Arc<Path> = Arc::from(Path::new("f"));
    let unreadable = FoundFile::Unreadable("permission denied".to_owned());
    let (events, remarks) = in_words(catalogue.update([(path, unreadable)]));
    assert_eq!((events, remarks), (vec![], vec!["f: permission denied".to_owned()]));
}

#[test]
fn of_two_files_with_one_object_the_first_counts() {
    let mut catalogue = Catalogue::default();
    assert_eq!(events(&mut catalogue, &[("m", &service("a", 80))]), ["a 1"]);
    let (events, remarks) = update(&mut catalogue, &[("z", &service("a", 90))]);
    assert_eq!(events, [""; 0]);
    assert_eq!(remarks, ["z: Service default/a is ignored here: m also defines it"]);
    let (events, remarks) = update(&mut catalogue, &[("z", &service("a", 91))]);
    assert_eq!((events, remarks), (vec![], vec![]), "reported once");

    let (events, remarks) = update(&mut catalogue, &[("b", &service("a", 70))]);
    assert_eq!(events, ["a 2"], "an earlier path takes over");
    assert_eq!(remarks.len(), 2, "{remarks:?}");
    assert_eq!(events_of_removal(&mut catalogue, "b"), ["a 3"]);
    assert_eq!(events_of_removal(&mut catalogue, "m"), ["a 4"]);
    assert_eq!(catalogue.remarks().iter().count(), 0);
    assert_eq!(events_of_removal(&mut catalogue, "z"), ["-a"]);
}

#[test]
fn a_move_between_files_is_no_event() {
    let mut catalogue = Catalogue::default();
    events(&mut catalogue, &[("f", &service("a", 80))]);
    assert_eq!(events(&mut catalogue, &[("f", ""), ("a", &service("a", 80))]), [""; 0]);
}

#[test]
fn an_object_twice_in_one_file_is_reported_and_the_first_counts() {
    let mut catalogue = Catalogue::default();
    let (events, remarks) =
        update(&mut catalogue, &[("f", &(service("a", 80) + &service("a", 81)))]);
    assert_eq!(events, ["a 1"]);
    assert_eq!(remarks, ["f: Service default/a is defined twice: the first one applies"]);
}

#[test]
fn what_is_not_used_is_no_fault() {
    let mut catalogue = Catalogue::default();
    update(&mut catalogue, &[("f", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}")]);
    let kinds: Vec<RemarkKind> = catalogue.remarks().iter().map(|remark| remark.kind).collect();
    assert_eq!(kinds, [RemarkKind::Ignored]);
}
