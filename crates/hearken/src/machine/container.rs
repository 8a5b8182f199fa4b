//! The memory that a container leaves to its processes (control groups of Linux, versions 1 and 2).
//!
//! A group may be inside others, each with a limit: all of them hold.

use std::fs;
use std::path::{Path, PathBuf};

/// The names of a version's files.
struct Names {
    limit: &'static str,
    usage: &'static str,
    /// In `memory.stat`: files that were read and can be given up at once.
    cache: &'static str,
}

const V1: Names = Names {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cache: "total_inactive_file",
};
const V2: Names = Names { limit: "memory.max", usage: "memory.current", cache: "inactive_file" };

/// The fewest bytes that a group of this process leaves free; `None` if none has a limit. `groups` is
/// `/proc/self/cgroup`, `root` is where control groups are mounted.
pub(super) fn free_bytes(groups: &str, root: &Path) -> Option<usize> {
    let group = |line: &str| -> Option<(PathBuf, String, Names)> {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        if controllers.is_empty() {
            Some((root.to_owned(), path.to_owned(), V2))
        } else if controllers.split(',').any(|name| name == "memory") {
            Some((root.join("memory"), path.to_owned(), V1))
        } else {
            None
        }
    };
    let groups = groups.lines().filter_map(group);
    groups.filter_map(|(root, path, names)| free_along(&root, &path, &names)).min()
}

/// The fewest bytes that are free in the group at `path` or one around it. In a container the path may
/// be the host's, which is not there: then the root is the container's own group.
fn free_along(root: &Path, path: &str, names: &Names) -> Option<usize> {
    let own = root.join(path.trim_start_matches('/'));
    let around = own.ancestors().take_while(|group| group.starts_with(root));
    around.filter_map(|group| free_in(group, names)).min()
}

fn free_in(group: &Path, names: &Names) -> Option<usize> {
    let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse().ok();
    let limit: usize = number(names.limit)?; // version 2 writes "max" for none
    let usage: usize = number(names.usage)?;
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let cache = stat.lines().find_map(|line| line.strip_prefix(names.cache)?.trim().parse().ok());
    Some(limit.saturating_sub(usage.saturating_sub(cache.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(root: &Path, path: &str, files: &[(&str, &str)]) {
        let group = root.join(path);
        fs::create_dir_all(&group).unwrap();
        for (name, text) in files {
            fs::write(group.join(name), text).unwrap();
        }
    }

    #[test]
    fn the_tightest_of_nested_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let outer = [("memory.max", "1000\n"), ("memory.current", "700\n")];
        group(root.path(), "a", &outer);
        let inner = [("memory.max", "max\n"), ("memory.current", "600\n")];
        group(root.path(), "a/b", &inner);
        assert_eq!(free_bytes("0::/a/b\n", root.path()), Some(300));
        group(root.path(), "a", &[("memory.stat", "anon 1\ninactive_file 200\n")]);
        assert_eq!(free_bytes("0::/a/b\n", root.path()), Some(500));
        assert_eq!(free_bytes("0::/\n", root.path()), None);
    }

    #[test]
    fn the_older_version_is_read_too() {
        let root = tempfile::tempdir().unwrap();
        let limits = [("memory.limit_in_bytes", "500\n"), ("memory.usage_in_bytes", "100\n")];
        // A path of the host's, which the container does not see.
        group(root.path(), "memory", &limits);
        let groups = "5:cpu:/x\n4:memory,hugetlb:/docker/123\n0::/\n";
        assert_eq!(free_bytes(groups, root.path()), Some(400));
        assert_eq!(free_bytes("5:cpu:/x\n", root.path()), None);
    }
}
