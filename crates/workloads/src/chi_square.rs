//! A goodness-of-fit test for the distributions of the generators, used by tests only, always on fixed seeds.

/// The chi-square value above which a fit is rejected, in standard deviations of the normal distribution: exceeded by
/// chance about once in a million times. The seeds are fixed, so a test that passes once always passes.
const DEVIATIONS_MAX: f64 = 4.75;

/// Panics unless `observed` counts fit the `expected` shares.
///
/// # Panics
/// Panics if they do not fit, or if cells expect too few counts for the test to be meaningful.
pub(crate) fn assert_fits(what: &str, observed: &[u64], expected: &[f64]) {
    assert_eq!(observed.len(), expected.len(), "{what}: one share per count");
    let sum: f64 = expected.iter().sum();
    assert!((sum - 1.0).abs() < 1e-9, "{what}: shares sum to {sum}");
    let total: u64 = observed.iter().sum();
    let mut chi_square = 0.0;
    for (count, share) in observed.iter().zip(expected) {
        let wanted = total as f64 * share;
        assert!(wanted >= 5.0, "{what}: a cell expects only {wanted} counts; draw more");
        chi_square += (*count as f64 - wanted).powi(2) / wanted;
    }
    // Wilson and Hilferty: the cube root of chi-square over its degrees of freedom is close to normal.
    let freedom = (observed.len() - 1) as f64;
    let spread = 2.0 / (9.0 * freedom);
    let deviations = ((chi_square / freedom).cbrt() - (1.0 - spread)) / spread.sqrt();
    assert!(
        deviations < DEVIATIONS_MAX,
        "{what} does not fit: chi-square {chi_square:.1} at {freedom} degrees of freedom, {deviations:.1} deviations; \
         counts {observed:?}"
    );
}

#[test]
#[should_panic(expected = "does not fit")]
fn a_wrong_distribution_is_refused() {
    assert_fits("a die loaded by a tenth", &[10_000, 10_000, 11_000], &[1.0 / 3.0; 3]);
}
