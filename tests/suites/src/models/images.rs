//! The kernels of `tegra-image`, compared with the software Orin, which its own tests compare with the CPU.

use std::error::Error;

use tegra_hcq::{Device, DeviceKind};
use tegra_image::{Camera, Colour, Develop, Fit, Format, Kernels, Layout, Lens, Shape, Surface};

use crate::fixtures::{equal, patience};
use test_harness::{Check, Context, Skip};
use test_support::Numbers;

/// Formats of frames, and the size of all of them: odd numbers of blocks.
const FORMATS: [&[u8; 4]; 8] = [b"NV12", b"NV16", b"NV24", b"AB24", b"GREY", b"RG10", b"pgAA", b"pBCC"];
const SIZE: (u32, u32) = (162, 90);

/// Names and results of kernels.
type Results = Vec<(String, Vec<f32>)>;

/// The results of all kernels on a device.
fn results(device: &Device, context: &Context) -> Result<Results, Box<dyn Error + Send + Sync>> {
    let (kernels, mut queue) = (Kernels::load(device)?, device.queue()?);
    let shape = Shape::rgb(SIZE.0, SIZE.1);
    let (to, fit) = (Shape::rgb(97, 101), Fit::Letterbox { fill: 0.25 });
    let mut results = Vec::new();
    let (mut rgb, mut small) = (device.alloc::<f32>(3 * 162 * 90)?, device.alloc::<f32>(3 * 97 * 101)?);
    for (seed, code) in (1..).zip(FORMATS) {
        let format = Format::from_fourcc(*code).ok_or("an unknown format")?;
        let surface = Surface::packed(format, SIZE.0, SIZE.1, Layout::Pitch)?;
        let words = Numbers::new(seed).vec_u32(surface.bytes().div_ceil(4) as usize);
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        bytes.truncate(surface.bytes() as usize);
        let frame = device.alloc_from(&bytes)?;
        let develop = Develop { black: 64, white: None, gains: [1.5, 1.0, 1.25] };
        match format {
            Format::Raw { .. } => kernels.raw_to_rgb(&mut queue, &frame, &surface, &develop, &mut rgb),
            _ if format.planes() == 2 => {
                kernels.yuv_to_rgb(&mut queue, &frame, &surface, Colour::BT709_LIMITED, &mut rgb)
            }
            _ => kernels.packed_to_rgb(&mut queue, &frame, &surface, &mut rgb),
        }?;
        queue.wait(patience(context))?;
        results.push((format.to_string(), rgb.to_vec()?));
    }
    kernels.resize(&mut queue, &rgb, shape, &mut small, to, fit)?;
    kernels.normalise(&mut queue, &mut small, to, &[0.5, 0.4, 0.3], &[2.0, 3.0, 4.0])?;
    queue.wait(patience(context))?;
    results.push(("resize and normalise".to_owned(), small.to_vec()?));
    let camera = Camera { fx: 120.0, fy: 118.0, cx: 80.5, cy: 44.0 };
    let lens = Lens { k1: -0.28, k2: 0.07, p1: 0.001, p2: -0.002, k3: 0.01 };
    let ideal = Camera { cx: 48.0, cy: 50.0, ..camera };
    kernels.undistort(&mut queue, &rgb, (shape, camera, lens), &mut small, (to, ideal), -1.0)?;
    queue.wait(patience(context))?;
    results.push(("undistort".to_owned(), small.to_vec()?));
    Ok(results)
}

pub(super) fn images(context: &Context) -> Check {
    if context.is_model() {
        return Err(Skip("the tests of tegra-image compare the model with the CPU".to_owned()).into());
    }
    let wanted = results(&Device::open(DeviceKind::Sim)?, context)?;
    for ((name, got), (_, wanted)) in results(context.device()?, context)?.iter().zip(&wanted) {
        equal(name, got, wanted)?;
    }
    Ok(())
}
