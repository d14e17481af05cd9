//! Changing a few fields of a descriptor that is already in GPU memory.
//!
//! A [`Group`] resolves fields to words when the program is compiled: which words they occupy, which bits of each.
//! [`Group::patch`] places values in those bits, or refuses them. The resulting [`Patch`] covers whole words only
//! where its fields do. The other bits come from the caller: [`Patch::update`] reads them from the descriptor
//! (read-modify-write), [`Patch::over`] takes them from a copy of its words, for memory that the CPU reads slowly.
//!
//! ```
//! use ampere_cmd::qmd::{Group, QmdV3_0, pointer, v3_0};
//!
//! const CHAIN: Group<v3_0::Layout, 3> = Group::new([
//!     v3_0::DEPENDENT_QMD0_POINTER,
//!     v3_0::DEPENDENT_QMD0_ENABLE,
//!     v3_0::DEPENDENT_QMD0_ACTION,
//! ]);
//!
//! let mut qmd = QmdV3_0::new();
//! let action = v3_0::DEPENDENT_QMD0_ACTION_QMD_SCHEDULE;
//! qmd.apply(&CHAIN.patch([pointer(0x15_0000_0200)?.into(), 1, action])?);
//! assert_eq!(qmd.get(v3_0::DEPENDENT_QMD0_POINTER), 0x1500_0002);
//! assert!(CHAIN.patch([0, 2, 0]).is_err()); // ENABLE has one bit
//! # Ok::<(), ampere_cmd::FieldError>(())
//! ```

use core::fmt;
use core::marker::PhantomData;

use super::field::{Field, FieldInfo, Place};
use super::{ALIGNMENT, Version};
use crate::error::FieldError;

/// Number of low bits of a descriptor's address that a pointer omits.
const POINTER_SHIFT: u32 = ALIGNMENT.trailing_zeros();

/// The address of a descriptor as the launch methods and the field DEPENDENT_QMD0_POINTER take it: shifted right by 8.
///
/// # Errors
///
/// [`FieldError::LostBits`] if the address is not a multiple of [`ALIGNMENT`], [`FieldError::TooWide`] from 2^40 on.
#[inline]
pub const fn pointer(va: u64) -> Result<u32, FieldError> {
    let field = "QMD_ADDRESS_SHIFTED8";
    if !va.is_multiple_of(ALIGNMENT) {
        return Err(FieldError::LostBits { field, value: va, shift: POINTER_SHIFT });
    }
    let units = va >> POINTER_SHIFT;
    if units > u32::MAX as u64 {
        return Err(FieldError::TooWide { field, value: units, bits: u32::BITS });
    }
    // CAST: fits, as checked.
    Ok(units as u32)
}

/// The address of the descriptor that [`pointer()`] has made `pointer` of.
#[must_use]
#[inline]
pub const fn pointed_va(pointer: u32) -> u64 {
    (pointer as u64) << POINTER_SHIFT
}

/// Fields of layout `V` that are written together, resolved to words.
///
/// ```
/// # fn main() -> Result<(), ampere_cmd::Error> {
/// use ampere_cmd::qmd::Group;
/// use ampere_cmd::qmd::v3_0;
///
/// let grid = Group::new([v3_0::CTA_RASTER_WIDTH, v3_0::CTA_RASTER_HEIGHT]);
/// let patch = grid.patch([7, 3])?;
/// assert!(!patch.words().is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Group<V, const FIELDS: usize> {
    fields: [FieldInfo; FIELDS],
    places: [Place; FIELDS],
    /// For each field, the entry of `words` that it lies in.
    slots: [usize; FIELDS],
    /// Word indices and the bits of each that the fields cover; `used` entries.
    words: [(usize, u32); FIELDS],
    used: usize,
    layout: PhantomData<V>,
}

impl<V: Version, const FIELDS: usize> Group<V, FIELDS> {
    /// Resolves fields to words. Meant for constants: the work is done when the program is compiled.
    ///
    /// # Panics
    ///
    /// If two of the fields share bits.
    #[must_use]
    pub const fn new(fields: [Field<V>; FIELDS]) -> Self {
        const NONE: FieldInfo =
            FieldInfo { name: "", hi: 0, lo: 0, count: 1, stride: 0, shift: 0, values: &[] };
        let mut this = Self {
            fields: [NONE; FIELDS],
            places: [NONE.place(0); FIELDS],
            slots: [0; FIELDS],
            words: [(0, 0); FIELDS],
            used: 0,
            layout: PhantomData,
        };
        let mut at = 0;
        while at < FIELDS {
            let place = fields[at].place();
            let mut slot = 0;
            while slot < this.used && this.words[slot].0 != place.word {
                slot += 1;
            }
            if slot == this.used {
                this.words[slot] = (place.word, 0);
                this.used += 1;
            }
            assert!(this.words[slot].1 & place.mask() == 0, "two fields of a group share bits");
            this.words[slot].1 |= place.mask();
            this.fields[at] = fields[at].info();
            this.places[at] = place;
            this.slots[at] = slot;
            at += 1;
        }
        this
    }

    /// Indices of the words that contain the fields, in the order of first use.
    pub fn words(&self) -> impl Iterator<Item = usize> + '_ {
        self.words[..self.used].iter().map(|(word, _)| *word)
    }

    /// Whether some field of the group lies in the same word as `field`.
    #[must_use]
    pub const fn shares_word(&self, field: Field<V>) -> bool {
        let word = field.place().word;
        let mut slot = 0;
        while slot < self.used {
            if self.words[slot].0 == word {
                return true;
            }
            slot += 1;
        }
        false
    }

    /// Places one value per field, in the order of [`Group::new`].
    ///
    /// # Errors
    ///
    /// [`FieldError::TooWide`] for the first value that does not fit its field.
    #[inline]
    pub const fn patch(&self, values: [u64; FIELDS]) -> Result<Patch<V, FIELDS>, FieldError> {
        let mut patch = Patch { words: [PatchWord::EMPTY; FIELDS], used: self.used, layout: PhantomData };
        let mut slot = 0;
        while slot < self.used {
            let (index, mask) = self.words[slot];
            patch.words[slot] = PatchWord { index, mask, bits: 0 };
            slot += 1;
        }
        let mut at = 0;
        while at < FIELDS {
            let place = self.places[at];
            if values[at] > place.max as u64 {
                return Err(self.refusal(at, values[at]));
            }
            // CAST: at most `max`.
            patch.words[self.slots[at]].bits |= (values[at] as u32) << place.shift;
            at += 1;
        }
        Ok(patch)
    }

    #[cold]
    const fn refusal(&self, at: usize, value: u64) -> FieldError {
        let field = &self.fields[at];
        FieldError::TooWide { field: field.name, value, bits: field.width() }
    }

    /// Reads the fields from the words of a descriptor, in the order of [`Group::new`]. Words beyond the end of the
    /// slice count as 0.
    #[must_use]
    #[inline]
    pub fn read(&self, words: &[u32]) -> [u64; FIELDS] {
        self.places.map(|place| {
            let word = words.get(place.word).copied().unwrap_or(0);
            u64::from(word >> place.shift & place.max)
        })
    }
}

/// One word of a [`Patch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchWord {
    /// Index of the word in the descriptor.
    pub index: usize,
    /// Bits that the patch writes.
    pub mask: u32,
    /// Their values. No bit outside of `mask` is set.
    pub bits: u32,
}

impl PatchWord {
    const EMPTY: Self = Self { index: 0, mask: 0, bits: 0 };

    /// The patched word, if it contained `word`.
    #[must_use]
    #[inline]
    pub const fn over(self, word: u32) -> u32 {
        word & !self.mask | self.bits
    }
}

/// Values of fields of layout `V`, placed in up to `WORDS` words.
#[derive(Clone, Copy)]
pub struct Patch<V, const WORDS: usize> {
    words: [PatchWord; WORDS],
    used: usize,
    layout: PhantomData<V>,
}

impl<V: Version, const WORDS: usize> Patch<V, WORDS> {
    /// A patch that changes nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: [PatchWord::EMPTY; WORDS], used: 0, layout: PhantomData }
    }

    /// The same patch with one field more. A field that the patch already contains gets the new value.
    ///
    /// For fields that are known when the program is compiled, [`Group`] does the same faster.
    ///
    /// # Errors
    ///
    /// [`FieldError::TooWide`] if the value does not fit, [`FieldError::PatchFull`] if the field lies in a word for
    /// which the patch has no room.
    pub const fn with(mut self, field: Field<V>, value: u64) -> Result<Self, FieldError> {
        let info = field.info();
        let value = match info.narrow(value) {
            Ok(value) => value,
            Err(error) => return Err(error),
        };
        let place = field.place();
        let mut slot = 0;
        while slot < self.used && self.words[slot].index != place.word {
            slot += 1;
        }
        if slot == WORDS {
            return Err(FieldError::PatchFull { field: info.name, words: WORDS });
        }
        if slot == self.used {
            self.words[slot] = PatchWord { index: place.word, mask: 0, bits: 0 };
            self.used += 1;
        }
        let word = &mut self.words[slot];
        word.mask |= place.mask();
        word.bits = word.bits & !place.mask() | value << place.shift;
        Ok(self)
    }

    /// The words of the patch.
    #[must_use]
    #[inline]
    pub fn words(&self) -> &[PatchWord] {
        &self.words[..self.used]
    }

    /// Reads each word of the patch, replaces its bits, and writes it back. `load` and `store` get the index of the
    /// word in the descriptor.
    #[inline]
    pub fn update(&self, mut load: impl FnMut(usize) -> u32, mut store: impl FnMut(usize, u32)) {
        for word in self.words() {
            store(word.index, word.over(load(word.index)));
        }
    }

    /// Writes each word of the patch without reading it: bits outside of the patch are those of `image`, a copy of the
    /// descriptor's words. Words beyond the end of the copy count as 0.
    #[inline]
    pub fn over(&self, image: &[u32], mut store: impl FnMut(usize, u32)) {
        self.update(|index| image.get(index).copied().unwrap_or(0), &mut store);
    }
}

impl<V: Version, const WORDS: usize> Default for Patch<V, WORDS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V, const WORDS: usize> PartialEq for Patch<V, WORDS> {
    fn eq(&self, other: &Self) -> bool {
        self.words[..self.used] == other.words[..other.used]
    }
}

impl<V, const WORDS: usize> Eq for Patch<V, WORDS> {}

impl<V, const WORDS: usize> fmt::Debug for Patch<V, WORDS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.words[..self.used]).finish()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;

    use super::*;
    use crate::qmd::{Qmd, v2_4, v3_0, v3_0_hopper, v4_0};

    fn patched<V: Version, const N: usize>(before: &Qmd<V>, patch: &Patch<V, N>) -> Qmd<V> {
        let mut words = before.as_words().to_vec();
        let read = words.clone();
        patch.update(|index| read[index], |index, word| words[index] = word);
        Qmd::from_slice(&words).unwrap()
    }

    /// For every field of a layout, on random descriptors: a patch of the field equals setting it, by read-modify-write
    /// and by writing alone; a value too large is refused and changes nothing.
    fn a_patch_equals_set<V: Version>() {
        let mut runner = TestRunner::new(ProptestConfig::with_cases(16));
        for field in Qmd::<V>::fields() {
            let group = Group::new([field]);
            let bits = field.info().width();
            let inputs = (prop::collection::vec(any::<u32>(), Qmd::<V>::WORDS), any::<u32>());
            runner
                .run(&inputs, |(words, value)| {
                    let before = Qmd::<V>::from_slice(&words).unwrap();
                    let value = u64::from(value >> (32 - bits));
                    let mut expected = before;
                    expected.set(field, value).unwrap();
                    let patch = group.patch([value]).unwrap();
                    prop_assert_eq!(patched(&before, &patch), expected, "{:?}", field);
                    prop_assert_eq!(Patch::new().with(field, value), Ok(patch));
                    prop_assert_eq!(group.read(expected.as_words()), [value]);
                    let mut blind = words.clone();
                    patch.over(&words, |index, word| blind[index] = word);
                    prop_assert_eq!(blind.as_slice(), expected.as_words());

                    let beyond = 1 << bits;
                    let refused = FieldError::TooWide { field: field.info().name, value: beyond, bits };
                    prop_assert_eq!(group.patch([beyond]), Err(refused));
                    prop_assert_eq!(group.patch([u64::MAX]).is_err(), true);
                    prop_assert_eq!(Patch::<V, 1>::new().with(field, beyond), Err(refused));
                    Ok(())
                })
                .unwrap();
        }
    }

    #[test]
    fn a_patch_of_any_field_equals_setting_it() {
        a_patch_equals_set::<v2_4::Layout>();
        a_patch_equals_set::<v3_0::Layout>();
        a_patch_equals_set::<v3_0_hopper::Layout>();
        a_patch_equals_set::<v4_0::Layout>();
    }

    /// Groups of six fields: all are set, nothing else changes, and one value too large refuses them all.
    fn groups_equal_sets<V: Version>() {
        let fields: Vec<Field<V>> = Qmd::<V>::fields().collect();
        let picks = prop::sample::subsequence((0..fields.len()).collect::<Vec<_>>(), 6);
        let inputs =
            (prop::collection::vec(any::<u32>(), Qmd::<V>::WORDS), picks, any::<[u32; 6]>(), 0..6_usize);
        let mut runner = TestRunner::new(ProptestConfig::with_cases(256));
        runner
            .run(&inputs, |(words, picks, values, broken)| {
                let before = Qmd::<V>::from_slice(&words).unwrap();
                let picked: [Field<V>; 6] = core::array::from_fn(|at| fields[picks[at]]);
                let group = Group::new(picked);
                let mut fitting: [u64; 6] =
                    core::array::from_fn(|at| u64::from(values[at] >> (32 - picked[at].info().width())));
                let mut expected = before;
                let mut builder = Patch::<V, 6>::new();
                for (field, value) in picked.into_iter().zip(fitting) {
                    expected.set(field, value).unwrap();
                    builder = builder.with(field, value).unwrap();
                }
                let patch = group.patch(fitting).unwrap();
                prop_assert_eq!(patched(&before, &patch), expected);
                prop_assert_eq!(builder, patch);
                prop_assert_eq!(group.read(expected.as_words()), fitting);
                prop_assert!(group.words().eq(patch.words().iter().map(|word| word.index)));
                fitting[broken] = 1 << picked[broken].info().width();
                let refused = group.patch(fitting);
                let name = picked[broken].info().name;
                let is_named = matches!(refused, Err(FieldError::TooWide { field, .. }) if field == name);
                prop_assert!(is_named);
                Ok(())
            })
            .unwrap();
    }

    #[test]
    fn a_patch_of_a_group_equals_setting_its_fields() {
        groups_equal_sets::<v3_0::Layout>();
        groups_equal_sets::<v4_0::Layout>();
    }

    #[test]
    #[should_panic(expected = "share bits")]
    fn a_group_does_not_contain_a_field_twice() {
        let _ = Group::new([v3_0::DEPENDENT_QMD0_ENABLE, v3_0::DEPENDENT_QMD0_ENABLE]);
    }

    #[test]
    fn a_patch_without_room_refuses_a_field_of_another_word() {
        let patch = Patch::<_, 1>::new().with(v3_0::DEPENDENT_QMD0_ENABLE, 1).unwrap();
        let patch = patch.with(v3_0::DEPENDENT_QMD0_ACTION, 3).unwrap();
        assert_eq!(patch.words(), [PatchWord { index: 16, mask: 0xf, bits: 0x7 }]);
        let full = FieldError::PatchFull { field: "DEPENDENT_QMD0_POINTER", words: 1 };
        assert_eq!(patch.with(v3_0::DEPENDENT_QMD0_POINTER, 1), Err(full));
        // A value that is set again replaces the first.
        assert_eq!(patch.with(v3_0::DEPENDENT_QMD0_ACTION, 1).unwrap().words()[0].bits, 0x3);
    }

    #[test]
    fn fields_that_share_a_word_with_a_group_are_known() {
        let enable = Group::new([v3_0::DEPENDENT_QMD0_ENABLE]);
        assert!(enable.shares_word(v3_0::DEPENDENT_QMD0_ACTION));
        assert!(!enable.shares_word(v3_0::DEPENDENT_QMD0_POINTER));
        let barrier = Group::new([v4_0::CWD_MEMBAR_TYPE]);
        assert!(barrier.shares_word(v4_0::FREE_CTA_SLOTS_EMPTY_SM));
        assert!(!barrier.shares_word(v4_0::CTA_THREAD_DIMENSION0));
    }

    #[test]
    fn a_pointer_that_loses_bits_is_refused() {
        assert_eq!(pointer(0x15_0000_0200), Ok(0x1500_0002));
        assert_eq!(pointed_va(0x1500_0002), 0x15_0000_0200);
        assert_eq!(pointer(0xff_ffff_ff00), Ok(u32::MAX));
        assert!(matches!(pointer(0x15_0000_0280), Err(FieldError::LostBits { shift: 8, .. })));
        assert!(matches!(pointer(1 << 40), Err(FieldError::TooWide { bits: 32, value: 0x1_0000_0000, .. })));
    }
}
