//! The kernels against the CPU, under the checks of the software Orin. The kernels have no fused operations, so results
//! are equal bit for bit, except where the reference computes in 64 bits.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tegra_hcq::{Buffer, Device, DeviceKind, Queue, check};
use tegra_image::{
    Bayer, Camera, Colour, Depth, Develop, Error, Fit, Format, Kernels, Layout, Lens, Matrix, Packing,
    Placement, Plane, Range, Shape, Surface,
};
use test_support::{Numbers, TIMEOUT, allocations};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

/// A frame of random bytes in memory, with gaps before planes and behind rows.
struct Frame {
    surface: Surface,
    bytes: Vec<u8>,
}

impl Frame {
    fn new(format: Format, (width, height): (u32, u32), gaps: (u32, u64), seed: u64) -> Self {
        let mut end = 0;
        let planes: Vec<Plane> = (0..format.planes())
            .map(|index| {
                let (row_bytes, rows) = format.plane_size(index, width, height);
                let (pitch, offset) = (row_bytes as u32 + gaps.0, end + gaps.1);
                let size = u64::from(pitch) * u64::from(rows);
                end = offset + size;
                Plane { offset, pitch, size, layout: Layout::Pitch }
            })
            .collect();
        let surface = Surface::new(format, width, height, &planes, end).unwrap();
        let bytes = Numbers::new(seed).vec_u32(end as usize).iter().map(|word| *word as u8).collect();
        Self { surface, bytes }
    }

    /// Byte `x` of row `y` of a plane.
    fn at(&self, plane: usize, x: u32, y: u32) -> u32 {
        let plane = self.surface.planes()[plane];
        self.bytes[(plane.offset + u64::from(y * plane.pitch + x)) as usize].into()
    }

    fn size(&self) -> (u32, u32) {
        (self.surface.width(), self.surface.height())
    }
}

/// Three planes of an image whose pixels are computed one by one.
fn planes<T>((width, height): (u32, u32), pixel: impl Fn(u32, u32) -> [T; 3]) -> Vec<T> {
    let all: Vec<[T; 3]> =
        (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| pixel(x, y)).collect();
    let mut planes = [Vec::new(), Vec::new(), Vec::new()];
    for pixel in all {
        planes.iter_mut().zip(pixel).for_each(|(plane, value)| plane.push(value));
    }
    planes.into_iter().flatten().collect()
}

/// A device with checks, a queue and the kernels.
struct Bench<'a> {
    device: &'a Device,
    queue: Queue,
    kernels: Kernels,
}

impl Bench<'_> {
    /// The result of a kernel that fills `elements` floats.
    fn run(
        &mut self,
        elements: u64,
        kernel: impl FnOnce(&Kernels, &mut Queue, &mut Buffer<f32>),
    ) -> Vec<f32> {
        let mut target = self.device.alloc::<f32>(elements as usize).unwrap();
        kernel(&self.kernels, &mut self.queue, &mut target);
        self.queue.wait(TIMEOUT).unwrap();
        target.to_vec().unwrap()
    }

    /// A frame as planar RGB.
    fn convert(
        &mut self,
        frame: &Frame,
        kernel: impl FnOnce(&Kernels, &mut Queue, &Buffer<u8>, &Surface, &mut Buffer<f32>) -> Result<(), Error>,
    ) -> Vec<f32> {
        let memory = self.device.alloc_from(&frame.bytes).unwrap();
        let elements = Shape::rgb(frame.surface.width(), frame.surface.height()).elements();
        self.run(elements, |kernels, queue, target| {
            kernel(kernels, queue, &memory, &frame.surface, target).unwrap();
        })
    }
}

/// Runs a test for many inputs on one device with checks, of which nothing is found.
fn cases<S: Strategy>(strategy: S, test: impl Fn(&mut Bench<'_>, S::Value)) {
    check::clean(|device| {
        let kernels = Kernels::load(device).unwrap();
        let bench = std::cell::RefCell::new(Bench { device, queue: device.queue()?, kernels });
        TestRunner::new(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })
            .run(&strategy, |case| {
                test(&mut bench.borrow_mut(), case);
                Ok(())
            })
            .unwrap();
        Ok(())
    });
}

fn gaps() -> impl Strategy<Value = (u32, u64)> {
    (0..9_u32, 0..9_u64)
}

/// Red, green and blue from 0 to 1 by the definitions of BT.601 and BT.709, in 64 bits.
fn rgb_of(colour: Colour, [luma, cb, cr]: [u32; 3]) -> [f64; 3] {
    let (kr, kb) = if colour.matrix == Matrix::Bt601 { (0.299, 0.114) } else { (0.2126, 0.0722) };
    let (black, white, chroma) =
        if colour.range == Range::Full { (0.0, 255.0, 255.0) } else { (16.0, 219.0, 224.0) };
    let luma = (f64::from(luma) - black) / white;
    let [cb, cr] = [cb, cr].map(|value| (f64::from(value) - 128.0) / chroma);
    // cb = (blue - luma) / (2 * (1 - kb)), and luma = kr * red + (1 - kr - kb) * green + kb * blue.
    let (red, blue) = (luma + 2.0 * (1.0 - kr) * cr, luma + 2.0 * (1.0 - kb) * cb);
    let green = (luma - kr * red - kb * blue) / (1.0 - kr - kb);
    [red, green, blue].map(|value| value.clamp(0.0, 1.0))
}

#[test]
fn luma_and_chroma_become_the_colours_of_their_standard() {
    let formats = prop::sample::select(vec![Format::Nv12, Format::Nv16, Format::Nv24]);
    let colours = prop::sample::select(vec![
        Colour::BT601_LIMITED,
        Colour::BT601_FULL,
        Colour::BT709_LIMITED,
        Colour::BT709_FULL,
    ]);
    cases(
        (formats, colours, 1..50_u32, 1..20_u32, gaps()),
        |bench, (format, colour, width, height, gaps)| {
            let (x, y) = format.chroma_shift().unwrap();
            let frame = Frame::new(format, (width << x, height << y), gaps, 1);
            let got = bench.convert(&frame, |kernels, queue, memory, surface, target| {
                kernels.yuv_to_rgb(queue, memory, surface, colour, target)
            });
            let wanted = planes(frame.size(), |column, row| {
                let pair = |byte| frame.at(1, 2 * (column >> x) + byte, row >> y);
                rgb_of(colour, [frame.at(0, column, row), pair(0), pair(1)])
            });
            for (at, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
                assert!(
                    (f64::from(*got) - wanted).abs() < 1e-6,
                    "{format} {colour:?}, float {at}: {got} for {wanted}"
                );
            }
            assert_eq!(got.len(), wanted.len());
        },
    );
}

#[test]
fn bytes_become_planes() {
    let formats = prop::sample::select(vec![Format::Gray8, Format::Rgba8, Format::Bgra8]);
    cases((formats, 1..70_u32, 1..30_u32, gaps()), |bench, (format, width, height, gaps)| {
        let frame = Frame::new(format, (width, height), gaps, 2);
        let got = bench.convert(&frame, |kernels, queue, memory, surface, target| {
            kernels.packed_to_rgb(queue, memory, surface, target)
        });
        let wanted = planes(frame.size(), |x, y| match format {
            Format::Gray8 => [frame.at(0, x, y); 3],
            Format::Rgba8 => [0, 1, 2].map(|byte| frame.at(0, 4 * x + byte, y)),
            _ => [2, 1, 0].map(|byte| frame.at(0, 4 * x + byte, y)),
        });
        assert_eq!(got, wanted.iter().map(|byte| *byte as f32 / 255.0).collect::<Vec<_>>(), "{format}");
    });
}

/// A sample of a raw frame, by the definition of its packing.
fn sample(frame: &Frame, x: u32, y: u32) -> u32 {
    match frame.surface.format() {
        Format::Raw { depth, packing: Packing::Words { shift }, .. } => {
            let word = frame.at(0, 2 * x, y) + 256 * frame.at(0, 2 * x + 1, y);
            word / (1 << shift) % (1 << depth.bits())
        }
        // The high bytes of a group, then one byte with the low bits of all, the first sample's lowest.
        Format::Raw { depth: Depth::Ten, .. } => {
            4 * frame.at(0, x / 4 * 5 + x % 4, y) + frame.at(0, x / 4 * 5 + 4, y) / 4_u32.pow(x % 4) % 4
        }
        _ => 16 * frame.at(0, x / 2 * 3 + x % 2, y) + frame.at(0, x / 2 * 3 + 2, y) / 16_u32.pow(x % 2) % 16,
    }
}

/// A colour of a pixel: its sample, or the mean of the samples around it that have the colour.
fn demosaic(frame: &Frame, order: Bayer, (x, y): (u32, u32), colour: char) -> f32 {
    let names = format!("{order:?}").to_uppercase().into_bytes();
    let has = |x: u32, y: u32| names[(y % 2 * 2 + x % 2) as usize] as char == colour;
    if has(x, y) {
        return sample(frame, x, y) as f32;
    }
    let (width, height) = frame.size();
    let mirrored =
        |at: i64, size: u32| if at == i64::from(size) { size - 2 } else { at.unsigned_abs() as u32 };
    let around: Vec<u32> = [-1, 0, 1]
        .iter()
        .flat_map(|dy| {
            [-1, 0, 1].map(|dx| (mirrored(i64::from(x) + dx, width), mirrored(i64::from(y) + dy, height)))
        })
        .filter(|(x, y)| has(*x, *y))
        .map(|(x, y)| sample(frame, x, y))
        .collect();
    around.iter().sum::<u32>() as f32 / around.len() as f32
}

#[test]
fn raw_samples_become_colours_by_their_neighbours() {
    let packings = prop_oneof![Just(Packing::Mipi), (0..=6_u8).prop_map(|shift| Packing::Words { shift })];
    let orders = prop::sample::select(vec![Bayer::Rggb, Bayer::Grbg, Bayer::Gbrg, Bayer::Bggr]);
    let formats = (prop::bool::ANY, packings, orders).prop_map(|(ten, packing, order)| {
        let (depth, most) = if ten { (Depth::Ten, 6) } else { (Depth::Twelve, 4) };
        let packing = match packing {
            Packing::Words { shift } => Packing::Words { shift: shift.min(most) },
            mipi => mipi,
        };
        (depth, packing, order)
    });
    let levels = (0..300_u16, prop::option::of(600..1000_u16), [0.5..2.0_f32, 0.5..2.0, 0.5..2.0]);
    cases((formats, 2..70_u32, 2..20_u32, gaps(), levels), |bench, case| {
        let ((depth, packing, order), width, height, gaps, (black, white, gains)) = case;
        let frame = Frame::new(Format::Raw { depth, packing, order }, (width, height), gaps, 3);
        let develop = Develop { black, white, gains };
        let got = bench.convert(&frame, |kernels, queue, memory, surface, target| {
            kernels.raw_to_rgb(queue, memory, surface, &develop, target)
        });
        let most = white.map_or((1 << depth.bits()) - 1, u32::from) - u32::from(black);
        let wanted = planes(frame.size(), |x, y| {
            [('R', 0), ('G', 1), ('B', 2)].map(|(colour, index)| {
                let light = demosaic(&frame, order, (x, y), colour) - f32::from(black);
                (light / most as f32 * gains[index]).clamp(0.0, 1.0)
            })
        });
        assert_eq!(got, wanted, "{} {width}x{height}", frame.surface);
    });
}

/// An image of random floats.
fn image(shape: Shape, seed: u64) -> Vec<f32> {
    Numbers::new(seed)
        .vec_u32(shape.elements() as usize)
        .iter()
        .map(|word| (*word >> 8) as f32 / (1 << 24) as f32)
        .collect()
}

/// A channel between its pixels.
fn between(image: &[f32], shape: Shape, channel: u32, (x, y): (f32, f32)) -> f32 {
    let (left, top) = (x.floor(), y.floor());
    let at = |x: f32, y: f32| {
        let (x, y) = ((x as u32).min(shape.width - 1), (y as u32).min(shape.height - 1));
        image[((channel * shape.height + y) * shape.width + x) as usize]
    };
    let mix = |a: f32, b: f32, part: f32| a + (b - a) * part;
    let row = |y: f32| mix(at(left, y), at(left + 1.0, y), x - left);
    mix(row(top), row(top + 1.0), y - top)
}

fn shape(most: u32) -> impl Strategy<Value = (u32, u32)> {
    (1..=most, 1..=most)
}

#[test]
fn resized_images_are_between_their_pixels() {
    let fits = prop_oneof![Just(Fit::Stretch), (-1.0..2.0_f32).prop_map(|fill| Fit::Letterbox { fill })];
    cases((1..=4_u32, shape(60), shape(60), fits), |bench, (channels, from, to, fit)| {
        let [from, to] = [from, to].map(|(width, height)| Shape { channels, width, height });
        let source = image(from, 4);
        let memory = bench.device.alloc_from(&source).unwrap();
        let mut place = None;
        let got = bench.run(to.elements(), |kernels, queue, target| {
            place = Some(kernels.resize(queue, &memory, from, target, to, fit).unwrap());
        });
        let place = place.unwrap();
        let steps = (from.width as f32 / place.width as f32, from.height as f32 / place.height as f32);
        let along =
            |at: u32, step: f32, size: u32| ((at as f32 + 0.5) * step - 0.5).clamp(0.0, (size - 1) as f32);
        let mut wanted = Vec::new();
        for (channel, y) in (0..channels).flat_map(|channel| (0..to.height).map(move |y| (channel, y))) {
            wanted.extend((0..to.width).map(|x| {
                let (x, y) = (x.wrapping_sub(place.left), y.wrapping_sub(place.top));
                match fit {
                    Fit::Letterbox { fill } if x >= place.width || y >= place.height => fill,
                    _ => {
                        let point = (along(x, steps.0, from.width), along(y, steps.1, from.height));
                        between(&source, from, channel, point)
                    }
                }
            }));
        }
        assert_eq!(got, wanted, "{from:?} to {to:?}, {fit:?}");
    });
}

#[test]
fn letterboxes_keep_proportions_and_lead_back() {
    let device = Device::open(DeviceKind::Sim).unwrap();
    let mut queue = device.queue().unwrap();
    let kernels = Kernels::load(&device).unwrap();
    let mut place = |from: (u32, u32), to: (u32, u32)| {
        let [from, to] = [from, to].map(|(width, height)| Shape { channels: 1, width, height });
        let source = device.alloc::<f32>(from.elements() as usize).unwrap();
        let mut target = device.alloc::<f32>(to.elements() as usize).unwrap();
        kernels.resize(&mut queue, &source, from, &mut target, to, Fit::Letterbox { fill: 0.0 }).unwrap()
    };
    assert_eq!(place((192, 108), (64, 64)), Placement { left: 0, top: 14, width: 64, height: 36 });
    assert_eq!(place((108, 192), (64, 64)), Placement { left: 14, top: 0, width: 36, height: 64 });
    assert_eq!(place((300, 2), (30, 30)), Placement { left: 0, top: 14, width: 30, height: 1 });
    assert_eq!(place((30, 30), (30, 30)), Placement { left: 0, top: 0, width: 30, height: 30 });
    let found = place((192, 108), (64, 64)).to_source(Shape::rgb(192, 108), (16.0, 14.0));
    assert_eq!(found, (48.0, 0.0));
}

#[test]
fn undistorted_images_are_what_the_lens_has_seen() {
    let coefficient = -0.3..0.3_f32;
    let lens = [coefficient.clone(), coefficient.clone(), -0.02..0.02, -0.02..0.02, coefficient];
    let camera = |(width, height): (u32, u32), stretch: f32| Camera {
        fx: 0.8 * width as f32,
        fy: 0.9 * stretch * height as f32,
        cx: 0.48 * width as f32,
        cy: 0.53 * height as f32,
    };
    cases(
        (1..=3_u32, shape(50), shape(50), lens, 0.7..1.4_f32),
        |bench, (channels, from, to, lens, stretch)| {
            let (seen, ideal) = (camera(from, 1.0), camera(to, stretch));
            let [k1, k2, p1, p2, k3] = lens;
            let lens = Lens { k1, k2, p1, p2, k3 };
            let [from, to] = [from, to].map(|(width, height)| Shape { channels, width, height });
            let source = image(from, 5);
            let memory = bench.device.alloc_from(&source).unwrap();
            let got = bench.run(to.elements(), |kernels, queue, target| {
                kernels.undistort(queue, &memory, (from, seen, lens), target, (to, ideal), -1.0).unwrap();
            });
            let mut wanted = Vec::new();
            for (channel, row) in
                (0..channels).flat_map(|channel| (0..to.height).map(move |row| (channel, row)))
            {
                wanted.extend((0..to.width).map(|column| {
                    let (x, y) = ((column as f32 - ideal.cx) / ideal.fx, (row as f32 - ideal.cy) / ideal.fy);
                    let (xx, yy, xy) = (x * x, y * y, x * y);
                    let rr = xx + yy;
                    let radial = 1.0 + rr * (k1 + rr * (k2 + rr * k3));
                    let bent_x = x * radial + 2.0 * p1 * xy + p2 * (rr + 2.0 * xx);
                    let bent_y = y * radial + p1 * (rr + 2.0 * yy) + 2.0 * p2 * xy;
                    let (x, y) = (seen.fx * bent_x + seen.cx, seen.fy * bent_y + seen.cy);
                    let inside = (0.0..=(from.width - 1) as f32).contains(&x)
                        && (0.0..=(from.height - 1) as f32).contains(&y);
                    if inside { between(&source, from, channel, (x, y)) } else { -1.0 }
                }));
            }
            assert_eq!(got, wanted, "{from:?} to {to:?}, {lens:?}");
        },
    );
}

#[test]
fn a_lens_moves_points_as_opencv_does() {
    // By hand, with OpenCV's formula, for the point (80, 60) of the ideal image: x = 0.4, y = 0.3, r^2 = 0.25, so the
    // radial factor is 1.05; x becomes 0.42 + 0.0024 - 0.0114 = 0.411 and y 0.315 + 0.0043 - 0.0048 = 0.3145.
    let shape = Shape { channels: 1, width: 100, height: 100 };
    let camera = Camera { fx: 100.0, fy: 100.0, cx: 40.0, cy: 30.0 };
    let lens = Lens { k1: 0.16, k2: 0.16, p1: 0.01, p2: -0.02, k3: 0.0 };
    check::clean(|device| {
        let (kernels, mut queue) = (Kernels::load(device).unwrap(), device.queue()?);
        // Two images: the column, and the row, of each pixel.
        for (along_x, wanted) in [(true, 81.1), (false, 61.45)] {
            let values: Vec<f32> =
                (0..100).flat_map(|y| (0..100).map(move |x| if along_x { x } else { y } as f32)).collect();
            let source = device.alloc_from(&values)?;
            let mut target = device.alloc::<f32>(10_000)?;
            kernels
                .undistort(&mut queue, &source, (shape, camera, lens), &mut target, (shape, camera), 0.0)
                .unwrap();
            queue.wait(TIMEOUT)?;
            let got = target.to_vec()?[60 * 100 + 80];
            assert!((got - wanted).abs() < 1e-3, "{got} for {wanted}");
        }
        Ok(())
    });
}

#[test]
fn normalised_images_have_each_channels_mean_and_scale() {
    let numbers = || prop::collection::vec(-2.0..2.0_f32, 4);
    cases((1..=4_u32, shape(40), numbers(), numbers()), |bench, (channels, (width, height), mean, scale)| {
        let shape = Shape { channels, width, height };
        let source = image(shape, 6);
        let [mean, scale] = [&mean[..channels as usize], &scale[..channels as usize]];
        let got = bench.run(shape.elements(), |kernels, queue, target| {
            target.copy_from_slice(&source).unwrap();
            kernels.normalise(queue, target, shape, mean, scale).unwrap();
        });
        let of = |at: usize| at / (width * height) as usize;
        let wanted: Vec<f32> =
            source.iter().enumerate().map(|(at, value)| (value - mean[of(at)]) * scale[of(at)]).collect();
        assert_eq!(got, wanted, "{shape:?}");
    });
}

#[test]
fn calls_that_do_not_fit_are_refused_before_a_launch() {
    check::clean(|device| {
        let (kernels, mut queue) = (Kernels::load(device).unwrap(), device.queue()?);
        let queue = &mut queue;
        let (frame, mut rgb) = (device.alloc_from(&[0_u8; 96])?, device.alloc::<f32>(192)?);
        let nv12 = Surface::packed(Format::Nv12, 8, 8, Layout::Pitch).unwrap();
        let blocks =
            Surface::packed(Format::Nv12, 8, 8, Layout::BlockLinear { block_height_log2: 0 }).unwrap();
        let gray = Surface::packed(Format::Gray8, 8, 8, Layout::Pitch).unwrap();
        let raw = Surface::packed(crate::surfaces::RAW10, 48, 1, Layout::Pitch).unwrap();
        let colour = Colour::BT601_FULL;
        let develop = Develop::default();
        let shape = Shape { channels: 1, width: 12, height: 16 };
        let camera = Camera { fx: 1.0, fy: 0.0, cx: 0.0, cy: 0.0 };
        let source = device.alloc::<f32>(192)?;
        let mut row = device.alloc::<f32>(144)?;
        let refused: [(Result<(), Error>, &str); 14] = [
            (
                kernels.yuv_to_rgb(queue, &frame, &gray, colour, &mut rgb),
                "GRAY8, pitch-linear: yuv_to_rgb converts NV12",
            ),
            (
                kernels.yuv_to_rgb(queue, &frame, &blocks, colour, &mut rgb),
                "NV12, block-linear: kernels read pitch-linear",
            ),
            (
                kernels.yuv_to_rgb(queue, frame.slice(..95)?, &nv12, colour, &mut rgb),
                "the frame: a slice of 95 elements; the image needs 96",
            ),
            (
                kernels.yuv_to_rgb(queue, &frame, &nv12, colour, rgb.slice_mut(1..)?),
                "the planar target: a slice of 191",
            ),
            (kernels.packed_to_rgb(queue, &frame, &nv12, &mut rgb), "packed_to_rgb converts"),
            (kernels.raw_to_rgb(queue, &frame, &gray, &develop, &mut rgb), "raw_to_rgb converts"),
            (
                kernels.raw_to_rgb(queue, &frame, &raw, &develop, &mut row),
                "the shorter side of a raw frame is 1",
            ),
            (
                kernels
                    .resize(
                        queue,
                        &source,
                        shape,
                        &mut rgb,
                        Shape { channels: 2, width: 12, height: 8 },
                        Fit::Stretch,
                    )
                    .map(|_| ()),
                "the number of the target's channels is 2",
            ),
            (
                kernels.resize(queue, &source, shape, &mut row, shape, Fit::Stretch).map(|_| ()),
                "the target: a slice of 144",
            ),
            (kernels.normalise(queue, &mut rgb, Shape { channels: 0, ..shape }, &[], &[]), "channels is 0"),
            (
                kernels.normalise(queue, &mut rgb, Shape { width: 0, ..shape }, &[], &[]),
                "0x16: width and height",
            ),
            (kernels.normalise(queue, &mut rgb, shape, &[0.0, 0.0], &[1.0]), "the length of the means is 2"),
            (kernels.normalise(queue, &mut rgb, shape, &[0.0], &[]), "the length of the scales is 0"),
            (
                kernels.undistort(
                    queue,
                    &source,
                    (shape, camera, Lens::default()),
                    &mut rgb,
                    (shape, camera),
                    0.0,
                ),
                "a focal length is 0; permitted is a positive number of pixels",
            ),
        ];
        for (result, text) in refused {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(text), "{error}: {text}");
        }
        let square = Surface::packed(crate::surfaces::RAW10, 6, 8, Layout::Pitch).unwrap();
        let dark = Develop { black: 1023, ..develop };
        let error = kernels.raw_to_rgb(queue, &frame, &square, &dark, &mut row).unwrap_err().to_string();
        assert_eq!(error, "the black level is 1023; permitted is below the white level");
        queue.wait(TIMEOUT)
    });
}

#[test]
fn a_frame_costs_no_system_call_and_no_allocation() {
    let mut bench = test_support::Bench::spinning("basics");
    let (device, queue) = (&bench.device, &mut bench.queue);
    let kernels = Kernels::load(device).unwrap();
    let blocks = Surface::packed(Format::Nv12, 64, 48, Layout::BlockLinear { block_height_log2: 1 }).unwrap();
    let rows = Surface::packed(Format::Nv12, 64, 48, Layout::Pitch).unwrap();
    let (camera, network) = (Shape::rgb(64, 48), Shape::rgb(32, 32));
    let pinhole = Camera { fx: 50.0, fy: 50.0, cx: 32.0, cy: 24.0 };
    let frame = device.alloc_zeroed::<u8>(blocks.bytes() as usize).unwrap();
    let mut linear = device.alloc::<u8>(rows.bytes() as usize).unwrap();
    let planes = |shape: Shape| device.alloc::<f32>(shape.elements() as usize).unwrap();
    let (mut seen, mut straight, mut input) = (planes(camera), planes(camera), planes(network));
    let mut frames = |count: usize| {
        for _ in 0..count {
            blocks.copy(queue, &frame, &rows, &mut linear).unwrap();
            kernels.yuv_to_rgb(queue, &linear, &rows, Colour::BT601_LIMITED, &mut seen).unwrap();
            let (lens, target) = (Lens { k1: 0.1, ..Lens::default() }, (camera, pinhole));
            kernels.undistort(queue, &seen, (camera, pinhole, lens), &mut straight, target, 0.0).unwrap();
            kernels.resize(queue, &straight, camera, &mut input, network, Fit::Stretch).unwrap();
            kernels.normalise(queue, &mut input, network, &[0.5; 3], &[2.0; 3]).unwrap();
            queue.submit().unwrap().wait(TIMEOUT).unwrap();
        }
    };
    frames(5);
    let (calls, requests) = (bench.probe.calls(), bench.orin.ioctl_count());
    let ((), allocated) = allocations::during(|| frames(20));
    assert_eq!(bench.probe.calls() - calls, 0, "calls through the door");
    assert_eq!(bench.orin.ioctl_count() - requests, 0, "requests that reached the kernel");
    assert_eq!(allocated, 0, "allocations");
    // Luma and chroma of 0, limited range, are a dark green; compared in the middle of its plane.
    let green = rgb_of(Colour::BT601_LIMITED, [0; 3])[1] * 2.0 - 1.0;
    let got = f64::from(input.to_vec().unwrap()[32 * 32 + 16 * 32 + 16]);
    assert!((got - green).abs() < 1e-6, "{got} for {green}");
}
