//! Every error code has a page, every page a code, every kind of failure is a code.

#![allow(clippy::unwrap_used)]

use longhaul_registry::{FailureKind, codes};
use std::collections::BTreeSet;

#[test]
fn codes_and_pages_are_the_same_set() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/errors");
    let pages: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .map(|name| name.strip_suffix(".md").unwrap().to_owned())
        .collect();
    let known: BTreeSet<String> = codes::all().iter().map(|code| code.code.to_owned()).collect();
    assert_eq!(known, pages);
    assert_eq!(known.len(), codes::all().len(), "a code stands twice");
    for code in codes::all() {
        let file = std::fs::read_to_string(format!("{folder}/{}.md", code.code)).unwrap();
        assert_eq!(codes::page(code.code), Some(file.as_str()));
        assert_eq!(code.docs(), format!("docs/errors/{}.md", code.code));
    }
    assert!(codes::get("nothing").is_none() && codes::page("nothing").is_none());
}

#[test]
fn every_kind_is_a_code_of_that_kind() {
    for kind in FailureKind::ALL {
        assert_eq!(codes::get(kind.as_str()).unwrap().kind, Some(kind), "{kind}");
    }
}

#[test]
fn finer_codes_have_the_kind_that_the_design_gives_them() {
    let kinds = [
        ("output_truncated", FailureKind::SpecMismatch),
        ("poison", FailureKind::Internal),
        ("address_refused", FailureKind::VendorError),
        ("question_timeout", FailureKind::Timeout),
        ("unreadable_answer", FailureKind::VendorError),
        ("lost_at_vendor", FailureKind::NotFound),
    ];
    for (code, kind) in kinds {
        assert_eq!(codes::get(code).unwrap().kind, Some(kind), "{code}");
    }
}

#[test]
fn codes_of_the_api_have_the_status_of_their_meaning() {
    let statuses = [
        ("invalid_request", 422),
        ("unauthenticated", 401),
        ("forbidden", 403),
        ("not_found", 404),
        ("idempotency_conflict", 409),
        ("path_taken", 409),
        ("too_large", 413),
        ("rate_limited", 429),
        ("internal", 500),
        ("store_unavailable", 503),
        ("not_asked", 409),
        ("already_answered", 409),
        ("wrong_question", 409),
        ("invalid_answer", 422),
        ("already_final", 409),
        ("not_replayable", 409),
        ("cost_not_accepted", 422),
        ("not_parked", 409),
    ];
    for (code, status) in statuses {
        assert_eq!(codes::get(code).unwrap().http, Some(status), "{code}");
    }
}

#[test]
fn a_page_tells_what_happened_what_was_done_what_to_check_and_what_to_do() {
    let parts = ["\n## What happened\n", "\n## What Longhaul did\n", "\n## What to check\n", "\n## What to do\n"];
    for code in codes::all() {
        let page = code.page;
        assert!(page.starts_with(&format!("# `{}`: {}\n", code.code, code.title)), "{}", code.code);
        let mut rest = page;
        for part in parts {
            let (_, after) = rest.split_once(part).unwrap_or_else(|| panic!("{}: {part}", code.code));
            let body = after.split("\n## ").next().unwrap();
            assert!(body.trim().len() > 10, "{}: {part}", code.code);
            rest = after;
        }
        assert!(page.ends_with('\n') && !page.ends_with("\n\n"), "{}", code.code);
        assert_eq!(page.matches("```").count() % 2, 0, "{}", code.code);
        assert!(code.hint.len() > 5 && code.title.len() > 5 && !code.title.ends_with('.'), "{}", code.code);
    }
}

#[test]
fn links_between_pages_lead_somewhere() {
    for code in codes::all() {
        for link in code.page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.strip_suffix(".md").unwrap_or_else(|| panic!("{}: {link}", code.code));
            assert!(codes::get(target).is_some(), "{}: {link}", code.code);
        }
    }
}

#[test]
fn a_code_that_nobody_knows_gets_its_kinds_hint() {
    let known = codes::hint("poison", FailureKind::Internal);
    assert_eq!(known, codes::get("poison").unwrap().hint);
    assert_eq!(codes::hint("some_new_code", FailureKind::Quota), codes::get("quota").unwrap().hint);
}
