//! Writing bits, most significant first, with the codes that H.264 uses.

/// A row of bits that grows.
#[derive(Debug, Default, Clone)]
pub(super) struct Bits {
    bytes: Vec<u8>,
    /// Bits in `held` that are not in `bytes` yet, fewer than 8.
    count: u32,
    held: u64,
}

impl Bits {
    /// Appends the low `count` bits of a value; at most 32.
    pub(super) fn put(&mut self, value: u32, count: u32) {
        let value = u64::from(value) & ((1_u64 << count) - 1);
        self.held = (self.held << count) | value;
        self.count += count;
        while self.count >= 8 {
            self.count -= 8;
            let byte = (self.held >> self.count) & 0xff;
            self.bytes.push(u8::try_from(byte).unwrap_or(0));
        }
        self.held &= (1 << self.count) - 1;
    }

    /// One bit.
    pub(super) fn flag(&mut self, value: bool) {
        self.put(u32::from(value), 1);
    }

    /// An unsigned Exp-Golomb code, ue(v).
    pub(super) fn ue(&mut self, value: u32) {
        let code = value + 1;
        let length = 32 - code.leading_zeros();
        self.put(0, length - 1);
        self.put(code, length);
    }

    /// A signed Exp-Golomb code, se(v).
    pub(super) fn se(&mut self, value: i32) {
        let code = if value > 0 { value.unsigned_abs() * 2 - 1 } else { value.unsigned_abs() * 2 };
        self.ue(code);
    }

    /// Bits so far.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() * 8 + usize::try_from(self.count).unwrap_or(0)
    }

    /// A one and then zeros up to a whole byte, as a NAL unit ends.
    pub(super) fn trail(&mut self) {
        self.put(1, 1);
        self.align();
    }

    /// Zeros up to a whole byte.
    pub(super) fn align(&mut self) {
        if self.count > 0 {
            self.put(0, 8 - self.count);
        }
    }

    /// The bytes; a last broken one is filled with zeros.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        self.align();
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::Bits;

    #[test]
    fn exp_golomb_codes_are_those_of_the_standard() {
        // H.264 table 9-2 and 9-3: ue 0..4 = 1, 010, 011, 00100, 00101; se 1 = 010, -1 = 011.
        let mut bits = Bits::default();
        for value in 0..5 {
            bits.ue(value);
        }
        bits.se(1);
        bits.se(-1);
        assert_eq!(bits.len(), 1 + 3 + 3 + 5 + 5 + 3 + 3);
        assert_eq!(bits.into_bytes(), [0b1010_0110, 0b0100_0010, 0b1010_0110]);
    }
}
