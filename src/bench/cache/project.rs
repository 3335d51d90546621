//! The default workload: a generated C project, compiled repeatedly, like the paper's "large collection of programs".
//!
//! Several programs share all headers, so that "the various passes of the compiler, the include files, and the
//! libraries" are read repeatedly. The passes of the compiler (for GCC: cc1, as, collect2, ld) are copied onto the file
//! system that is measured and run from there, because their blocks make up most of the working set; intermediate files
//! are written there too. The rest of the compiler (its driver, the headers and libraries of the system) is read in
//! place.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::bench::programs;
use crate::error::{Error, Result};
use crate::units::{format_count, format_size};

/// The compiler's driver.
pub(super) const COMPILER: &str = "cc";
/// Names of the passes of GCC; other compilers have some of them, or none.
const PASSES: [&str; 4] = ["cc1", "collect2", "as", "ld"];
/// Directory of the passes, in the measured directory.
const PASSES_DIRECTORY: &str = "compiler";
/// The script that builds everything.
const SCRIPT: &str = "build.sh";
/// Source files per program, including the main one.
const SOURCES: u64 = 4;
/// Headers that each header includes.
const INCLUDED: u64 = 3;
/// Structures per header, each with a function.
const STRUCTURES: u64 = 50;
/// Most bytes of a header.
const HEADER_BYTES: u64 = 32 << 10;
/// Most bytes that a header adds to a source file, its object and the program together, on average.
const HEADER_USE_BYTES: u64 = 256;

/// Size of a project, and the number of builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Project {
    /// Programs.
    pub programs: u64,
    /// Headers, which every source file includes.
    pub headers: u64,
    /// Complete builds in one run.
    pub builds: u64,
}

impl Default for Project {
    fn default() -> Self {
        Project { programs: 5, headers: 40, builds: 2 }
    }
}

impl Project {
    /// Describes the project.
    pub(super) fn name(&self) -> String {
        format!(
            "compiling {} C programs of {SOURCES} files that share {} headers, {}",
            format_count(self.programs.into()),
            format_count(self.headers.into()),
            if self.builds == 1 { "once".to_owned() } else { format!("{} times", format_count(self.builds.into())) },
        )
    }

    /// Space for its files and those that a build creates, temporary ones apart, in blocks of `block_bytes`.
    pub(super) fn room_bytes(&self, block_bytes: u64) -> u64 {
        // Sources, objects, the program and its directory: a block or a few each, and more with each header.
        let program_bytes = (2 * SOURCES + 8).saturating_mul(block_bytes);
        let grown_bytes = (SOURCES * HEADER_USE_BYTES).saturating_mul(self.headers);
        let headers_bytes = HEADER_BYTES.next_multiple_of(block_bytes).saturating_mul(self.headers);
        self.programs.saturating_mul(program_bytes.saturating_add(grown_bytes)).saturating_add(headers_bytes)
    }

    /// Writes the project into an empty directory; returns the passes of the compiler that were copied, and their
    /// bytes.
    pub(super) fn write(&self, directory: &Path) -> Result<(Vec<String>, u64)> {
        let compiler = programs::find(COMPILER)?;
        make(&directory.join("include"))?;
        for header in 0..self.headers {
            write(&directory.join(format!("include/part{header}.h")), &header_text(header))?;
        }
        for program in 0..self.programs {
            make(&directory.join(format!("program{program}")))?;
            for source in 0..SOURCES {
                let path = directory.join(format!("program{program}/source{source}.c"));
                write(&path, &self.source_text(program, source))?;
            }
        }
        let copied = copy_passes(&compiler, &directory.join(PASSES_DIRECTORY))?;
        write(&directory.join(SCRIPT), &self.script(&compiler))?;
        Ok(copied)
    }

    /// The command that builds it, to be run in its directory.
    pub(super) fn command(&self) -> [&'static str; 2] {
        ["sh", SCRIPT]
    }

    fn source_text(&self, program: u64, source: u64) -> String {
        let mut text = String::from("#include <stdio.h>\n");
        for header in 0..self.headers {
            text.push_str(&format!("#include \"part{header}.h\"\n"));
        }
        text.push_str(&format!("\nlong step{source}(long value)\n{{\n    long sum = {program};\n"));
        for header in (source % INCLUDED..self.headers).step_by(INCLUDED as usize) {
            let structure = (program * SOURCES + source + header) % STRUCTURES;
            text.push_str(&format!(
                "    struct part{header}_{structure} of{header} = {{ (int)(value + {header}), {{ sum }}, \"p\" }};\n    \
                 sum += part{header}_{structure}_weight(&of{header});\n"
            ));
        }
        text.push_str("    return sum;\n}\n");
        if source == 0 {
            for other in 1..SOURCES {
                text.push_str(&format!("\nextern long step{other}(long value);\n"));
            }
            let steps: Vec<String> = (0..SOURCES).map(|step| format!("step{step}({step})")).collect();
            text.push_str(&format!(
                "\nint main(void)\n{{\n    printf(\"%ld\\n\", {});\n    return 0;\n}}\n",
                steps.join(" + ")
            ));
        }
        text
    }

    /// Each build recompiles everything, one file after another.
    fn script(&self, compiler: &Path) -> String {
        let mut text = format!(
            "set -e\nTMPDIR=$PWD/temporary\nexport TMPDIR\nfor build in $(seq {}); do\n    rm -rf temporary objects\n    mkdir temporary objects\n",
            self.builds
        );
        let driver =
            format!("'{}' -B\"$PWD/{PASSES_DIRECTORY}/\" -O1", compiler.to_string_lossy().replace('\'', "'\\''"));
        for program in 0..self.programs {
            let mut objects = String::new();
            for source in 0..SOURCES {
                let object = format!("objects/program{program}-{source}.o");
                text.push_str(&format!("    {driver} -Iinclude -c program{program}/source{source}.c -o {object}\n"));
                objects.push_str(&format!(" {object}"));
            }
            text.push_str(&format!("    {driver}{objects} -o objects/program{program}\n"));
        }
        text.push_str("done\n");
        text
    }
}

fn header_text(header: u64) -> String {
    let mut text = format!("#ifndef PART{header}_H\n#define PART{header}_H\n");
    for included in header.saturating_sub(INCLUDED)..header {
        text.push_str(&format!("#include \"part{included}.h\"\n"));
    }
    for structure in 0..STRUCTURES {
        let (name, length) = (format!("part{header}_{structure}"), structure % 7 + 1);
        text.push_str(&format!(
            "\n/* Number {structure} of the structures of part {header}: a count, some values, and a name. */\n\
             struct {name} {{\n    int count;\n    long values[{length}];\n    const char *name;\n}};\n\n\
             static inline long {name}_weight(const struct {name} *part)\n{{\n    \
             long weight = part->count * {structure}L + part->values[0];\n    \
             for (int at = 1; at < {length}; at++)\n        weight ^= part->values[at] << at;\n    \
             return part->name ? weight + part->name[0] : weight;\n}}\n"
        ));
    }
    text.push_str("\n#endif\n");
    text
}

/// Copies the passes that the compiler names; returns their names and bytes.
fn copy_passes(compiler: &Path, to: &Path) -> Result<(Vec<String>, u64)> {
    make(to)?;
    let (mut names, mut bytes) = (Vec::new(), 0);
    for pass in PASSES {
        let Some(path) = pass_path(compiler, pass) else { continue };
        let target = to.join(pass);
        bytes += fs::copy(&path, &target).map_err(|error| Error::io("copy the compiler to", &target, error))?;
        names.push(pass.to_owned());
    }
    Ok((names, bytes))
}

/// Path of a pass. The compiler prints only its name if the pass is in the PATH or does not exist.
fn pass_path(compiler: &Path, pass: &str) -> Option<PathBuf> {
    let mut command = Command::new(compiler);
    let output = command.arg(format!("-print-prog-name={pass}")).stdin(Stdio::null()).output().ok()?;
    let said = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    let path = if said.is_absolute() { said } else { programs::find(said.to_str()?).ok()? };
    // A compiler that is a single program may name itself.
    let real = |path: &Path| fs::canonicalize(path).ok();
    path.is_file().then_some(path).filter(|path| real(path) != real(compiler))
}

fn make(directory: &Path) -> Result<()> {
    fs::create_dir(directory).map_err(|error| Error::io("create the directory", directory, error))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| Error::io("write", path, error))
}

/// A note on the compiler for the result.
pub(super) fn note(passes: &[String], bytes: u64) -> String {
    match passes {
        [] => format!(
            "The passes of {COMPILER} could not be copied onto the measured file system: they are read from their own \
                file system, with its block size."
        ),
        passes => format!(
            "The passes of the compiler ({}, {}) were run from the measured file system, where intermediate files \
                were also written; everything else that it needs was read from its own place.",
            passes.join(", "),
            format_size(bytes.into()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_compiles_and_its_programs_run() {
        let directory = tempfile::tempdir().unwrap();
        if programs::find(COMPILER).is_err() {
            return;
        }
        let project = Project { programs: 2, headers: 4, builds: 2 };
        let (passes, bytes) = project.write(directory.path()).unwrap();
        assert_eq!(passes.is_empty(), bytes == 0);
        let [shell, script] = project.command();
        let output = Command::new(shell).arg(script).current_dir(directory.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        let outputs = [0, 1].map(|program| {
            let path = directory.path().join(format!("objects/program{program}"));
            String::from_utf8(Command::new(path).output().unwrap().stdout).unwrap()
        });
        assert!(
            outputs.iter().all(|text| text.trim().parse::<i64>().is_ok()) && outputs[0] != outputs[1],
            "{outputs:?}"
        );
    }
}
