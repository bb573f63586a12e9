//! The exponential of all kernels: one polynomial that the compiler turns into vector code.
//!
//! The standard library's `exp` is a call a number, ten times slower in a loop. This one is exact
//! to two units in the last place, keeps infinities and NaN, and rounds results below the smallest
//! normal number to zero, as most accelerators do.

use super::lanes::Fma;

/// Above this the result is infinite: `ln(f32::MAX)`.
const HIGHEST: f32 = 88.722_84;
/// Below this the result is zero: `ln(f32::MIN_POSITIVE)`.
const LOWEST: f32 = -87.336_54;

/// `1.5 · 2²³`: adding it rounds to an integer, which then lies in the low bits.
const ROUND: f32 = 12_582_912.0;

/// `ln 2` in two parts; the first has nine bits, so that its product with an exponent is exact.
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

/// `eˣ`. Works without branches, so loops over it are vectorized.
#[inline(always)]
pub(super) fn exp(fma: Fma, x: f32) -> f32 {
    // x = n ln 2 + r with |r| ≤ ln 2 / 2, so eˣ = 2ⁿ eʳ.
    let rounded = fma.mul_add(x, std::f32::consts::LOG2_E, ROUND);
    let n = rounded - ROUND;
    let r = fma.mul_add(n, -LN_2[1], fma.mul_add(n, -LN_2[0], x));
    // The minimax polynomial of Cephes' expf, by Estrin's scheme: fewer steps wait for each other.
    let r_2 = r * r;
    let p_2 = fma.mul_add(r, 1.987_569_1e-4, 1.398_199_9e-3);
    let p_1 = fma.mul_add(r, 8.333_452e-3, 4.166_579_6e-2);
    let p_0 = fma.mul_add(r, 1.666_666_6e-1, 5.0e-1);
    let p = fma.mul_add(fma.mul_add(p_2, r_2, p_1), r_2, p_0);
    let e_r = fma.mul_add(p, r_2, r) + 1.0;
    // The low bits of `rounded` are n in two's complement: moved into place they add to the exponent.
    let scaled = f32::from_bits(e_r.to_bits().wrapping_add(rounded.to_bits() << 23));
    if x < LOWEST {
        0.0
    } else if x <= HIGHEST {
        scaled
    } else {
        x * f32::INFINITY // infinite, or NaN for NaN
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::lanes::{Fma, vectorized_fma};

    /// By both ways to multiply and add; the second is that of this machine.
    fn exp(x: f32) -> [f32; 2] {
        let plain = super::exp(Fma::of(pulp::Scalar), x);
        let here = vectorized_fma(
            #[inline(always)]
            |fma| super::exp(fma, x),
        );
        [plain, here]
    }

    /// Error in units of the last place of the exact result.
    fn error_in_ulps(x: f32) -> f64 {
        let exact = f64::from(x).exp();
        let exponent = exact.log2().floor().max(-126.0) as i32;
        let error = |result: f32| (f64::from(result) - exact).abs() / 2f64.powi(exponent - 23);
        exp(x).map(error).into_iter().fold(0.0, f64::max)
    }

    #[test]
    fn exponential_is_within_two_ulps_over_its_whole_range() {
        let worst = (-87_300..=88_700).map(|i| error_in_ulps(i as f32 * 1e-3)).fold(0.0, f64::max);
        assert!(worst <= 2.0, "{worst} ulps");
    }

    #[test]
    fn exponential_is_accurate_around_zero() {
        for exponent in -40..0 {
            for sign in [-1.0, 1.0] {
                let x = sign * 1.37 * 2f32.powi(exponent);
                assert!(error_in_ulps(x) <= 1.0, "exp({x}) = {:?}", exp(x));
            }
        }
        assert_eq!([exp(0.0), exp(-0.0)], [[1.0; 2]; 2]);
    }

    #[test]
    fn exponential_of_extremes_is_zero_infinite_or_nan() {
        for x in [-87.4, -104.0, -1e4, f32::MIN, f32::NEG_INFINITY] {
            assert_eq!(exp(x), [0.0; 2], "exp({x})");
        }
        for x in [88.73, 104.0, 1e4, f32::MAX, f32::INFINITY] {
            assert_eq!(exp(x), [f32::INFINITY; 2], "exp({x})");
        }
        assert!([f32::NAN, -f32::NAN].into_iter().flat_map(exp).all(f32::is_nan));
        assert!(exp(88.722).into_iter().all(f32::is_finite));
        assert!(exp(-87.33).into_iter().all(|y| y > 0.0));
    }
}
