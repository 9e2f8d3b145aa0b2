//! A Java class with one function that sleeps, for databases that run Java: written byte by byte, so that no compiler is needed.
//!
//! ```java
//! public class Nap { public static int nap(int millis) throws InterruptedException { Thread.sleep(millis); return millis; } }
//! ```

/// Name of the class and, with this ending, of its file.
pub const FILE: &str = "Nap.class";

/// The file's content, in the form of Java 5, the last that needs no map of its stack.
pub fn class() -> Vec<u8> {
    let mut class = vec![0xCA, 0xFE, 0xBA, 0xBE, 0, 0, 0, 49];
    let constants = [
        text("Nap"),
        named(CLASS, &[1]),
        text("java/lang/Object"),
        named(CLASS, &[3]),
        text("nap"),
        text("(I)I"),
        text("Code"),
        text("java/lang/Thread"),
        named(CLASS, &[8]),
        text("sleep"),
        text("(J)V"),
        named(NAME_AND_TYPE, &[10, 11]),
        named(METHOD, &[9, 12]),
    ];
    push(&mut class, constants.len() + 1);
    class.extend(constants.concat());
    // Public; this is 2, above it 4; no interfaces, no fields; one method, public and static, named 5 of type 6, with its code (7).
    for number in [0x0021, 2, 4, 0, 0, 1, 0x0009, 5, 6, 1, 7] {
        push(&mut class, number);
    }
    // load the number, make it long, call 13, load the number, return it.
    let code = [0x1A, 0x85, 0xB8, 0, 13, 0x1A, 0xAC];
    class.extend([0, 0, 0, 19, 0, 2, 0, 1, 0, 0, 0, 7]);
    class.extend(code);
    // No exception is caught; nothing more of the code, nothing more of the class.
    class.extend([0; 6]);
    class
}

const CLASS: u8 = 7;
const METHOD: u8 = 10;
const NAME_AND_TYPE: u8 = 12;

fn push(bytes: &mut Vec<u8>, number: usize) {
    bytes.extend(u16::try_from(number).expect("a small number").to_be_bytes());
}

fn text(text: &str) -> Vec<u8> {
    let mut constant = vec![1];
    push(&mut constant, text.len());
    constant.extend(text.bytes());
    constant
}

fn named(kind: u8, of: &[usize]) -> Vec<u8> {
    let mut constant = vec![kind];
    of.iter().for_each(|number| push(&mut constant, *number));
    constant
}
