//! Directions to faces of a cube.

/// The face that a direction hits, and the place on it from 0 to 1.
///
/// Faces are +X, -X, +Y, -Y, +Z, -Z, with the places of OpenGL and Direct3D.
pub(super) fn face([x, y, z]: [f32; 3]) -> (u32, [f32; 2]) {
    let [ax, ay, az] = [x, y, z].map(f32::abs);
    let (face, s, t, major) = if az >= ax && az >= ay {
        if z.is_sign_negative() { (5, -x, -y, az) } else { (4, x, -y, az) }
    } else if ay >= ax {
        if y.is_sign_negative() { (3, x, -z, ay) } else { (2, x, z, ay) }
    } else if x.is_sign_negative() {
        (1, z, -y, ax)
    } else {
        (0, -z, -y, ax)
    };
    (face, [s, t].map(|place| (place / major + 1.0) * 0.5))
}
