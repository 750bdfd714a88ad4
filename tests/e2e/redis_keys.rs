//! The key ring: made, rotated and cleared of old keys, under programs that run.

use crate::redis_site::{Site, printed};
use crate::servers::{Server, until};

/// How often an Envoy took a secret.
const SECRETS: &str = "sds.*update_success";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealing_key_is_replaced_and_no_proxy_is_sent_anything() {
    let redis = Server::start(&[]).await;
    let site = Site::new(&redis.url()).await;
    let translator = site.translator().await;
    let mut distributor = site.distributor("one").await;
    let envoy = site.envoy("envoy-one", &distributor).await;
    envoy.until_live().await;
    site.until_answered_by("blue").await;
    let file = site.keys();
    let file = file.to_str().unwrap();
    let keys = |command: &str, more: &[&str]| {
        site.helio(&[&["store", "keys", command, file], more].concat())
    };
    let ids = || printed(&keys("list", &[])).lines().map(str::to_owned).collect::<Vec<_>>();
    let [old] = &ids()[..] else { panic!("{:?}", ids()) };
    let again = keys("new", &[]);
    assert!(!again.status.success() && printed(&again).contains("nothing was changed"));
    let needed = keys("forget", &[old]);
    assert!(!needed.status.success() && printed(&needed).contains("is the one that seals"));
    let (versions, secrets) = (envoy.versions().await, envoy.counted(SECRETS).await);
    assert!(secrets > 0);

    let rotated = keys("rotate", &[]);
    assert!(rotated.status.success(), "{}", printed(&rotated));
    let [new, kept] = &ids()[..] else { panic!("{:?}", ids()) };
    assert_eq!(kept, old);
    for program in [&translator, &distributor] {
        program.until_logged("the key ring changed").await;
    }
    // A fleet is looked after when it has changed, and every half minute.
    site.point_services_at("green", "green");
    site.until_answered_by("green").await;
    translator.until_logged("secrets with the newest key").await;
    assert_eq!(translator.metric("heliograph_store_resealed_total").await, 1.0);
    let forgotten = keys("forget", &[old]);
    assert!(forgotten.status.success(), "{}", printed(&forgotten));
    assert_eq!(ids(), [new.as_str()]);

    // It opens what it finds with the new key alone.
    site.restart(&mut distributor).await;
    distributor.until_ready().await;
    let late = site.envoy("envoy-late", &distributor).await;
    late.until_live().await;
    late.until_versions(&versions).await;
    assert_eq!(site.ask_secure().await.unwrap(), "green web.test /");
    until("the Envoy is back", async || {
        distributor.page("/fleets").await.contains("\"connected\":2")
    })
    .await;
    assert_eq!(envoy.versions().await, versions);
    assert_eq!(envoy.counted(SECRETS).await, secrets, "a secret was sent again");
}
