//! Identifies the release of a set of headers.
//!
//! The headers contain no version, so the release is derived from their declarations. Between r32.7 and r34, NVIDIA
//! added remapping, buffer metadata and scheduling domains. r34 and r35 have the same requests. Between r35 and r36, it
//! added explicit subcontexts, shared TSGs, NUMA nodes in nvmap and GPU mappings of the submit resources. The five
//! headers are identical from r36.2 to r36.4.3, so these releases cannot be distinguished. Between r36.4.3 and r39, it
//! added masks of more units, syncpoints per host1x instance, huge pages and queries by NUMA node.

use super::probe::{Answer, Question};
use super::report::{Row, Status};

/// Returns the macros with the highest request numbers in the header at this path, one for each family of the header.
pub(super) fn last_of(path: &str) -> &'static [&'static str] {
    match path.rsplit('/').next() {
        Some("nvgpu-ctrl.h") => &["NVGPU_GPU_IOCTL_LAST"],
        Some("nvgpu-as.h") => &["NVGPU_AS_IOCTL_LAST"],
        Some("nvgpu.h") => &["NVGPU_TSG_IOCTL_LAST", "NVGPU_IOCTL_CHANNEL_LAST"],
        _ => &[],
    }
}

/// New in r34.
const SINCE_R34: [Question; 4] = [
    Question::Macro { name: "NVGPU_GPU_IOCTL_REGISTER_BUFFER" },
    Question::Macro { name: "NVGPU_AS_IOCTL_REMAP" },
    Question::Macro { name: "NVGPU_AS_IOCTL_MAPPING_MODIFY" },
    Question::Macro { name: "NVGPU_TSG_IOCTL_BIND_SCHEDULING_DOMAIN" },
];

/// New in r36.
const SINCE_R36: [Question; 6] = [
    Question::Place { of: "nvgpu_gpu_characteristics", field: "numa_domain_id" },
    Question::Macro { name: "NVGPU_GPU_IOCTL_GET_GPC_LOCAL_TO_PHYSICAL_MAP" },
    Question::Macro { name: "NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT" },
    Question::Macro { name: "NVGPU_TSG_IOCTL_GET_SHARE_TOKEN" },
    Question::Place { of: "nvgpu_channel_setup_bind_args", field: "gpfifo_gpu_va" },
    Question::Place { of: "nvmap_alloc_handle", field: "numa_nid" },
];

/// New in r39, or between r36.4.3 and it.
const SINCE_R39: [Question; 5] = [
    Question::Place { of: "nvgpu_gpu_characteristics", field: "huge_page_size" },
    Question::Macro { name: "NVGPU_GPU_IOCTL_GET_PPC_MASKS" },
    Question::Macro { name: "NVGPU_AS_IOCTL_GET_SYNC_RO_MAP_V2" },
    Question::Place { of: "nvmap_alloc_handle", field: "va" },
    Question::Macro { name: "NVMAP_IOC_QUERY_HEAP_PARAMS_NUMA" },
];

/// The identified release, with its evidence.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// One phrase.
    pub(super) looks_like: &'static str,
    /// Distinguishing declarations that are present.
    pub(super) has: Vec<String>,
    /// Distinguishing declarations that are absent.
    pub(super) lacks: Vec<String>,
    /// Families with requests above the highest number of the tables.
    pub(super) beyond: Vec<String>,
}

/// Identifies the release from the rows of all headers that were read.
pub(super) fn judge(rows: &[&Row]) -> Verdict {
    let find = |question: &Question| rows.iter().find(|row| row.question == *question);
    let mut has = Vec::new();
    let mut lacks = Vec::new();
    let mut count = |questions: &[Question]| {
        let (mut present, mut absent) = (0, 0);
        for question in questions {
            match find(question).map(|row| row.theirs) {
                None => {}
                Some(Answer::Absent) => {
                    absent += 1;
                    lacks.push(question.to_string());
                }
                Some(_) => {
                    present += 1;
                    has.push(question.to_string());
                }
            }
        }
        (present, absent)
    };
    let (r34_present, r34_absent) = count(&SINCE_R34);
    let (r36_present, r36_absent) = count(&SINCE_R36);
    let (r39_present, r39_absent) = count(&SINCE_R39);
    let beyond: Vec<String> = rows
        .iter()
        .filter(|row| !row.compared)
        .filter_map(|row| match (row.ours, row.theirs) {
            (Answer::Number(ours), Answer::Number(theirs)) if theirs > ours => {
                Some(format!("{} is {theirs}, not {ours}", row.question))
            }
            _ => None,
        })
        .collect();
    let equal = rows
        .iter()
        .filter(|row| row.compared)
        .all(|row| matches!(row.status(), Status::Ok | Status::Unchecked));
    let looks_like = if r39_present > 0 && r39_absent == 0 && equal && beyond.is_empty() {
        "r39, or r38 as far as its headers are published"
    } else if r39_present > 0 {
        "about r39, with differences from the published headers of its time"
    } else if !beyond.is_empty() && r36_absent == 0 && r36_present > 0 {
        "newer than r36.4.3"
    } else if equal && r36_present > 0 {
        "r36 (r36.2 to r36.4.3 have the same headers)"
    } else if r36_absent == 0 && r36_present > 0 {
        "r36 or newer, with differences from r36.4.3"
    } else if r36_present == 0 && r36_absent > 0 && r34_absent == 0 && r34_present > 0 {
        "older than r36: r34 or r35"
    } else if r36_present == 0 && r36_absent > 0 && r34_present == 0 && r34_absent > 0 {
        "older than r34"
    } else if r36_present == 0 && r36_absent > 0 && r34_present == 0 {
        "older than r36"
    } else {
        "unknown"
    };
    Verdict { looks_like, has, lacks, beyond }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of the marks, present or absent, and of one highest request number.
    fn verdict(r34: bool, r36: bool, last: u64) -> Verdict {
        let marks = |questions: &[Question], there: bool| -> Vec<Row> {
            let ours = Answer::Number(1);
            let theirs = if there { ours } else { Answer::Absent };
            questions
                .iter()
                .map(|question| Row { question: *question, ours, theirs, compared: true })
                .collect()
        };
        let mut rows = marks(&SINCE_R34, r34);
        rows.extend(marks(&SINCE_R36, r36));
        rows.push(Row {
            question: Question::Macro { name: "NVGPU_TSG_IOCTL_LAST" },
            ours: Answer::Number(21),
            theirs: Answer::Number(last),
            compared: false,
        });
        judge(&rows.iter().collect::<Vec<_>>())
    }

    #[test]
    fn declarations_identify_the_release() {
        assert_eq!(verdict(true, true, 21).looks_like, "r36 (r36.2 to r36.4.3 have the same headers)");
        assert_eq!(verdict(true, true, 24).looks_like, "newer than r36.4.3");
        assert_eq!(verdict(true, true, 24).beyond, ["NVGPU_TSG_IOCTL_LAST is 24, not 21"]);
        assert_eq!(verdict(true, false, 16).looks_like, "older than r36: r34 or r35");
        assert_eq!(verdict(false, false, 11).looks_like, "older than r34");
        assert_eq!(verdict(false, true, 21).looks_like, "r36 or newer, with differences from r36.4.3");
    }

    #[test]
    fn without_evidence_the_release_is_unknown() {
        assert_eq!(judge(&[]).looks_like, "unknown");
        let verdict = verdict(true, false, 16);
        assert_eq!(verdict.has.len(), SINCE_R34.len());
        assert_eq!(verdict.lacks.len(), SINCE_R36.len());
    }

    /// A mark missing from the tables would never be queried.
    #[test]
    fn every_mark_is_queried() {
        let asked: Vec<Question> = nvgpu_sys::headers::ALL.iter().flat_map(super::super::questions).collect();
        for mark in SINCE_R34.iter().chain(&SINCE_R36).chain(&SINCE_R39) {
            assert!(asked.contains(mark), "{mark}");
        }
    }
}
