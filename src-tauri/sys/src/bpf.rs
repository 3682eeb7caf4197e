//! A small assembler: from a table of system calls to a seccomp program that finds its entry by balanced search.

/// `AUDIT_ARCH_*` of x86-64.
pub const X86_64: u32 = 0xc000_003e;
/// `AUDIT_ARCH_*` of AArch64.
pub const AARCH64: u32 = 0xc000_00b7;

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCH: u32 = 4;
const OFFSET_ARGS: u32 = 16;

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It goes on.
    Allow,
    /// It returns this error number and nothing happens.
    Errno(u16),
    /// It waits for the listener's answer.
    Notify,
    /// The process ends by SIGSYS.
    Kill,
}

impl Action {
    /// What a program returns for it (`SECCOMP_RET_*`).
    pub fn value(self) -> u32 {
        match self {
            Action::Allow => 0x7fff_0000,
            Action::Errno(number) => 0x0005_0000 | u32::from(number),
            Action::Notify => 0x7fc0_0000,
            Action::Kill => 0x8000_0000,
        }
    }
}

/// A condition on the low 32 bits of one argument. The kernel reads all arguments asked about here as 32-bit values, so
/// nothing hides in the upper half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// `argument & mask` is one of these.
    OneOf {
        /// Which argument, from 0.
        arg: u8,
        /// Bits that count.
        mask: u32,
        /// Values.
        values: &'static [u32],
    },
    /// `argument & mask` is not 0.
    AnyBit {
        /// Which argument, from 0.
        arg: u8,
        /// Bits that count.
        mask: u32,
    },
}

/// An action for the calls that pass all tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clause {
    /// Tests.
    pub all: &'static [Test],
    /// Action.
    pub then: Action,
}

/// One system call: the first clause that holds decides, else `otherwise`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Number.
    pub number: u32,
    /// Clauses, in order.
    pub clauses: &'static [Clause],
    /// Action where none holds.
    pub otherwise: Action,
}

/// A whole filter.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    /// `AUDIT_ARCH_*`; a call of any other architecture ends the process, since its numbers mean something else.
    pub arch: u32,
    /// By number, ascending.
    pub entries: &'a [Entry],
    /// Action for numbers that have no entry.
    pub unlisted: Action,
}

/// A table that can't be assembled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadTable {
    /// Numbers must ascend.
    #[error("system call {0} is listed twice or out of order")]
    Order(u32),
    /// There are six arguments.
    #[error("system call {0} asks for an argument that does not exist")]
    Argument(u32),
    /// A jump spans at most 255 instructions.
    #[error("the clauses of system call {0} are too long")]
    TooLong(u32),
    /// The kernel takes at most 4096 instructions.
    #[error("the program has {0} instructions, more than the kernel takes")]
    TooBig(usize),
}

/// One instruction of classic BPF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// What.
    pub code: u16,
    /// Instructions skipped when the test holds.
    pub if_true: u8,
    /// Instructions skipped when it does not.
    pub if_false: u8,
    /// Operand.
    pub value: u32,
}

/// A program that [`crate::seccomp`] installs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program(Vec<Instruction>);

impl Program {
    /// Assembles a table.
    pub fn assemble(table: &Table<'_>) -> Result<Self, BadTable> {
        let mut program = vec![
            load(OFFSET_ARCH),
            Instruction { code: IF_EQUAL, if_true: 1, if_false: 0, value: table.arch },
            ret(Action::Kill),
            load(OFFSET_NUMBER),
        ];
        program.extend(search(&segments(table)?));
        if program.len() > 4096 {
            return Err(BadTable::TooBig(program.len()));
        }
        Ok(Self(program))
    }

    /// The instructions.
    pub fn instructions(&self) -> &[Instruction] {
        &self.0
    }

    /// What the kernel makes of a call: the value that this program returns ([`Action::value`]) and after how many
    /// instructions. A model, so that a table can be tried without being installed, on any machine. `None` where the program
    /// runs past its end or has an instruction that is not of this assembler's.
    pub fn run(&self, arch: u32, number: u32, args: [u64; 6]) -> Option<(u32, usize)> {
        let (mut at, mut steps, mut a) = (0, 0, 0u32);
        loop {
            let i = self.0.get(at)?;
            (at, steps) = (at + 1, steps + 1);
            let skip = |holds: bool| usize::from(if holds { i.if_true } else { i.if_false });
            match i.code {
                LOAD if i.value == OFFSET_ARCH => a = arch,
                LOAD if i.value == OFFSET_NUMBER => a = number,
                LOAD => {
                    let at = usize::try_from(i.value.checked_sub(OFFSET_ARGS)?).ok()?;
                    // As the kernel lays it out: in memory, in its own byte order.
                    let half: [u8; 4] = args.get(at / 8)?.to_ne_bytes().get(at % 8..at % 8 + 4)?.try_into().ok()?;
                    a = u32::from_ne_bytes(half);
                }
                AND => a &= i.value,
                JUMP => at += usize::try_from(i.value).ok()?,
                IF_EQUAL => at += skip(a == i.value),
                IF_AT_LEAST => at += skip(a >= i.value),
                IF_ANY_BIT => at += skip(a & i.value != 0),
                RETURN => return Some((i.value, steps)),
                _ => return None,
            }
        }
    }
}

/// A run of numbers that share their code.
struct Segment {
    first: u32,
    code: Vec<Instruction>,
}

/// Covers all numbers from 0 up; neighbours with the same code are one segment.
fn segments(table: &Table<'_>) -> Result<Vec<Segment>, BadTable> {
    let mut all: Vec<Segment> = Vec::new();
    let mut push = |first: u32, code: Vec<Instruction>| {
        if all.last().is_none_or(|s| s.code != code) {
            all.push(Segment { first, code });
        }
    };
    let mut next = 0;
    for entry in table.entries {
        if entry.number < next {
            return Err(BadTable::Order(entry.number));
        }
        if entry.number > next {
            push(next, vec![ret(table.unlisted)]);
        }
        push(entry.number, block(entry)?);
        next = entry.number + 1;
    }
    push(next, vec![ret(table.unlisted)]);
    Ok(all)
}

/// Binary search, with the number in the accumulator.
fn search(segments: &[Segment]) -> Vec<Instruction> {
    let (lower, upper) = segments.split_at(segments.len() / 2);
    let Some(middle) = upper.first() else { return Vec::new() };
    if lower.is_empty() {
        return middle.code.clone();
    }
    let below = search(lower);
    let mut code = Vec::with_capacity(below.len() + 2);
    match u8::try_from(below.len()) {
        Ok(len) => code.push(Instruction { code: IF_AT_LEAST, if_true: len, if_false: 0, value: middle.first }),
        // Conditional jumps span 255 instructions; the unconditional one spans everything.
        Err(_) => {
            code.push(Instruction { code: IF_AT_LEAST, if_true: 0, if_false: 1, value: middle.first });
            let len = u32::try_from(below.len()).unwrap_or(u32::MAX);
            code.push(Instruction { code: JUMP, if_true: 0, if_false: 0, value: len });
        }
    }
    code.extend(below);
    code.extend(search(upper));
    code
}

/// The code of one entry, which overwrites the accumulator. Built from its end, so that every jump knows its distance.
fn block(entry: &Entry) -> Result<Vec<Instruction>, BadTable> {
    let mut code = vec![ret(entry.otherwise)];
    for clause in entry.clauses.iter().rev() {
        let mut clause_code = vec![ret(clause.then)];
        for test in clause.all.iter().rev() {
            let to_end = u8::try_from(clause_code.len()).map_err(|_| BadTable::TooLong(entry.number))?;
            let mut test_code = Vec::new();
            let (Test::OneOf { arg, .. } | Test::AnyBit { arg, .. }) = *test;
            if arg > 5 {
                return Err(BadTable::Argument(entry.number));
            }
            test_code.push(load(OFFSET_ARGS + 8 * u32::from(arg) + LOW_HALF));
            match *test {
                Test::AnyBit { mask, .. } => {
                    test_code.push(Instruction { code: IF_ANY_BIT, if_true: 0, if_false: to_end, value: mask });
                }
                Test::OneOf { mask, values, .. } => {
                    if mask != u32::MAX {
                        test_code.push(Instruction { code: AND, if_true: 0, if_false: 0, value: mask });
                    }
                    for (i, value) in values.iter().enumerate() {
                        let left = values.len() - 1 - i;
                        let if_true = u8::try_from(left).map_err(|_| BadTable::TooLong(entry.number))?;
                        let if_false = if left == 0 { to_end } else { 0 };
                        test_code.push(Instruction { code: IF_EQUAL, if_true, if_false, value: *value });
                    }
                }
            }
            test_code.append(&mut clause_code);
            clause_code = test_code;
        }
        clause_code.append(&mut code);
        code = clause_code;
    }
    Ok(code)
}

const LOW_HALF: u32 = if cfg!(target_endian = "little") { 0 } else { 4 };

fn load(offset: u32) -> Instruction {
    Instruction { code: LOAD, if_true: 0, if_false: 0, value: offset }
}

fn ret(action: Action) -> Instruction {
    Instruction { code: RETURN, if_true: 0, if_false: 0, value: action.value() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn run(program: &Program, arch: u32, number: u32, args: [u64; 6]) -> u32 {
        program.run(arch, number, args).unwrap().0
    }

    fn value(action: Action) -> u32 {
        action.value()
    }

    #[test]
    fn every_number_finds_its_own_entry_and_no_other() {
        // Enough differing neighbours that the search needs its long jumps.
        let entries: Vec<Entry> = (0..900)
            .filter(|n| n % 7 != 3)
            .map(|number| Entry { number, clauses: &[], otherwise: Action::Errno(u16::try_from(number % 200).unwrap() + 1) })
            .collect();
        let program = Program::assemble(&Table { arch: X86_64, entries: &entries, unlisted: Action::Errno(999) }).unwrap();
        for number in 0..1000u32 {
            let want = if number >= 900 || number % 7 == 3 { 999 } else { u16::try_from(number % 200).unwrap() + 1 };
            assert_eq!(run(&program, X86_64, number, [0; 6]), value(Action::Errno(want)), "number {number}");
        }
        // x32 calls carry bit 30 and are just numbers without an entry.
        assert_eq!(run(&program, X86_64, 0x4000_0001, [0; 6]), value(Action::Errno(999)));
        assert_eq!(run(&program, 0x4000_0003, 1, [0; 6]), value(Action::Kill), "another architecture's numbers mean other calls");
    }

    #[test]
    fn clauses_are_tried_in_order_and_look_at_the_low_half_only() {
        const ENTRY: Entry = Entry {
            number: 41,
            clauses: &[
                Clause { all: &[Test::OneOf { arg: 0, mask: u32::MAX, values: &[1] }], then: Action::Allow },
                Clause {
                    all: &[
                        Test::OneOf { arg: 0, mask: u32::MAX, values: &[2, 10] },
                        Test::OneOf { arg: 1, mask: 0xf, values: &[1, 2] },
                        Test::AnyBit { arg: 2, mask: 0x10 },
                    ],
                    then: Action::Notify,
                },
            ],
            otherwise: Action::Errno(97),
        };
        let program = Program::assemble(&Table { arch: X86_64, entries: &[ENTRY], unlisted: Action::Allow }).unwrap();
        let call = |a, b, c| run(&program, X86_64, 41, [a, b, c, 0, 0, 0]);
        assert_eq!(call(1, 0, 0), value(Action::Allow));
        assert_eq!(
            call(0xdead_0000_0001, 0, 0),
            value(Action::Allow),
            "the kernel ignores the upper half, so it must not decide"
        );
        assert_eq!(call(2, 0x80001, 0x10), value(Action::Notify));
        assert_eq!(call(10, 0x80002, 0xff), value(Action::Notify));
        for (a, b, c) in [(2, 3, 0x10), (3, 1, 0x10), (10, 1, 0x0f)] {
            assert_eq!(call(a, b, c), value(Action::Errno(97)), "socket({a}, {b}, {c})");
        }
    }

    #[test]
    fn a_table_that_would_be_misread_is_refused() {
        let entry = |number| Entry { number, clauses: &[], otherwise: Action::Allow };
        fn table(entries: &[Entry]) -> Result<Program, BadTable> {
            Program::assemble(&Table { arch: X86_64, entries, unlisted: Action::Kill })
        }
        assert_eq!(table(&[entry(2), entry(1)]).unwrap_err(), BadTable::Order(1));
        assert_eq!(table(&[entry(1), entry(1)]).unwrap_err(), BadTable::Order(1));
        const SEVENTH: &[Clause] = &[Clause { all: &[Test::AnyBit { arg: 6, mask: 1 }], then: Action::Allow }];
        assert_eq!(table(&[Entry { number: 1, clauses: SEVENTH, otherwise: Action::Kill }]).unwrap_err(), BadTable::Argument(1));
    }
}
