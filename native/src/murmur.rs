//! MurmurHash3 (x86, 32 bits), the hash of scikit-learn's FeatureHasher.

pub fn murmur3(data: &[u8], seed: u32) -> u32 {
    let mut state = seed;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        state ^= mix(u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        state = state.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let tail = words.remainder();
    if !tail.is_empty() {
        let word = tail.iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        state ^= mix(word);
    }
    state ^= data.len() as u32;
    state = (state ^ state >> 16).wrapping_mul(0x85eb_ca6b);
    state = (state ^ state >> 13).wrapping_mul(0xc2b2_ae35);
    state ^ state >> 16
}

fn mix(word: u32) -> u32 {
    word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593)
}

#[cfg(test)]
mod tests {
    #[test]
    fn hashes_as_the_reference_implementation_does() {
        assert_eq!(super::murmur3(b"", 0), 0);
        assert_eq!(super::murmur3(b"", 1), 0x514e_28b7);
        assert_eq!(super::murmur3(b"hello", 0), 0x248b_fa47);
        assert_eq!(super::murmur3(b"hello, world", 0), 0x149b_bb7f);
    }
}
