//! Paints a frame on adapters that run on the cores of the host, which are those that train.
//!
//! egui filters a texture for every pixel, also of a plain rectangle, and there that is nearly all a
//! frame costs. [`Software`] takes the shapes out of each frame, cuts them into triangles as egui
//! would, and paints them with a shader of its own: plain colours as they are, glyphs texel by
//! pixel, since egui places them on pixels. What is seen is the same. Whatever has another texture
//! is left to egui.

use std::ops::Range;
use std::sync::Arc;

use eframe::egui;
use eframe::egui_wgpu::{
    Callback, CallbackResources, CallbackTrait, RenderState, ScreenDescriptor,
};
use eframe::wgpu;
use egui::epaint::{
    ClippedPrimitive, ClippedShape, Mesh, Primitive, Shape, TessellationOptions, Tessellator,
};
use egui::{Color32, ColorImage, Rect, TextureId};

/// Words of a corner: its place, its texel and its colour.
type Corner = [u32; 5];
/// Bytes of it.
const STRIDE: u64 = 20;

/// Whether an adapter runs on the cores of the host.
pub fn is_software(state: &RenderState) -> bool {
    state.adapter.get_info().device_type == wgpu::DeviceType::Cpu
}

/// The plugin that takes the shapes out of each frame.
#[derive(Debug)]
pub struct Software {
    /// What the window is cleared with.
    ground: Color32,
    /// Glyphs, and how often they have changed.
    atlas: (u64, Arc<ColorImage>),
    frame: u64,
}

impl Software {
    /// Paints the windows of a context in this way from now on. Does nothing where the target stores
    /// linear colours: there egui's own shader converts them.
    pub fn install(ctx: &egui::Context, state: &RenderState) {
        if state.target_format.is_srgb() {
            return;
        }
        let brush = Brush::new(&state.device, state.target_format);
        state.renderer.write().callback_resources.insert(brush);
        let atlas = Arc::new(ColorImage::filled([1, 1], Color32::WHITE));
        ctx.add_plugin(Self { ground: Color32::TRANSPARENT, atlas: (0, atlas), frame: 0 });
    }

    /// Says what the window is cleared with: such grounds need no painting.
    pub fn clears_with(ctx: &egui::Context, ground: Color32) {
        ctx.with_plugin::<Self, ()>(|plugin| plugin.ground = ground);
    }
}

impl egui::Plugin for Software {
    fn debug_name(&self) -> &'static str {
        "software"
    }

    fn output_hook(&mut self, ctx: &egui::Context, output: &mut egui::FullOutput) {
        let has_changed = output.textures_delta.set.contains_key(&TextureId::default());
        if has_changed || self.atlas.0 == 0 {
            let atlas = ctx.fonts(|fonts| fonts.image());
            self.atlas = (self.atlas.0 + 1, Arc::new(atlas));
        }
        let screen = ctx.viewport_rect();
        if !screen.is_positive() {
            return;
        }
        self.frame += 1;
        let shapes = std::mem::take(&mut output.shapes);
        let shapes = without_grounds(shapes, self.ground);
        let (version, atlas) = &self.atlas;
        // Small discs would be read from the atlas, larger than it has them.
        let options = TessellationOptions {
            prerasterized_discs: false,
            ..ctx.options(|options| options.tessellation_options)
        };
        let per_point = output.pixels_per_point;
        let primitives =
            Tessellator::new(per_point, options, atlas.size, Vec::new()).tessellate_shapes(shapes);
        let (corners, indices) = (Vec::new(), Vec::new());
        let mut triangles = Triangles { screen, atlas: atlas.size, corners, indices };
        let kept: Vec<_> = primitives.into_iter().map(|one| triangles.take(one)).collect();
        let Triangles { corners, indices, .. } = triangles;
        let atlas = (*version, Arc::clone(atlas));
        let frame = Arc::new(Frame { number: self.frame, corners, indices, atlas });
        output.shapes = kept.into_iter().map(|kept| kept.shape(screen, &frame)).collect();
    }
}

/// The shapes less rectangles in the colour that is there already.
fn without_grounds(shapes: Vec<ClippedShape>, ground: Color32) -> Vec<ClippedShape> {
    // Boxes of what is painted.
    let mut covered: Vec<Rect> = Vec::new();
    let mut needed = |clipped: &mut ClippedShape| {
        if let Shape::Mesh(mesh) = &mut clipped.shape
            && let Some(rect) = first_rect(mesh, ground)
        {
            let rect = rect.intersect(clipped.clip_rect);
            if !covered.iter().any(|covered| covered.intersects(rect.shrink(0.5))) {
                Arc::make_mut(mesh).indices.drain(..6);
            }
        }
        let within = clipped.shape.visual_bounding_rect();
        covered.push((clipped.transform_after_tessellation * within).intersect(clipped.clip_rect));
        !matches!(&clipped.shape, Shape::Mesh(mesh) if mesh.indices.is_empty())
    };
    shapes.into_iter().filter_map(|mut shape| needed(&mut shape).then_some(shape)).collect()
}

/// The rectangle that a mesh begins with, if it has the colour.
fn first_rect(mesh: &Mesh, colour: Color32) -> Option<Rect> {
    let [a, b, c, d] = mesh.vertices.first_chunk()?;
    let is_it = colour.is_opaque()
        && [a, b, c, d].iter().all(|corner| corner.color == colour)
        && mesh.indices.starts_with(&[0, 1, 2, 2, 1, 3])
        && (a.pos.y, a.pos.x, d.pos.y, d.pos.x) == (b.pos.y, c.pos.x, c.pos.y, b.pos.x);
    is_it.then(|| Rect::from_two_pos(a.pos, d.pos))
}

/// The triangles of a frame while they are gathered.
struct Triangles {
    screen: Rect,
    atlas: [usize; 2],
    corners: Vec<Corner>,
    indices: Vec<u32>,
}

impl Triangles {
    fn take(&mut self, primitive: ClippedPrimitive) -> Kept {
        let ClippedPrimitive { clip_rect, primitive } = primitive;
        let mesh = match primitive {
            Primitive::Mesh(mesh) if mesh.texture_id == TextureId::default() => mesh,
            Primitive::Mesh(mesh) => return Kept::Other(clip_rect, Shape::mesh(mesh)),
            Primitive::Callback(callback) => return Kept::Other(clip_rect, callback.into()),
        };
        let (start, first) = (self.indices.len() as u32, self.corners.len() as u32);
        self.indices.extend(mesh.indices.iter().map(|index| first + index));
        let Self { screen, atlas: [width, height], .. } = *self;
        self.corners.extend(mesh.vertices.iter().map(|vertex| {
            let at = (vertex.pos - screen.min) / screen.size() * 2.0;
            let texel = [vertex.uv.x * width as f32, vertex.uv.y * height as f32];
            let [x, y, u, v] = [at.x - 1.0, 1.0 - at.y, texel[0], texel[1]].map(f32::to_bits);
            [x, y, u, v, u32::from_ne_bytes(vertex.color.to_array())]
        }));
        Kept::Triangles(clip_rect, start..self.indices.len() as u32)
    }
}

/// What a frame is painted from, in order.
enum Kept {
    /// Left to egui.
    Other(Rect, Shape),
    /// Some of the triangles, by their indices.
    Triangles(Rect, Range<u32>),
}

impl Kept {
    fn shape(self, screen: Rect, frame: &Arc<Frame>) -> ClippedShape {
        match self {
            Self::Other(clip, shape) => ClippedShape::new(clip, shape),
            Self::Triangles(clip, indices) => {
                let part = Part { frame: Arc::clone(frame), indices };
                ClippedShape::new(clip, Callback::new_paint_callback(screen, part))
            }
        }
    }
}

/// All triangles of a frame, and the glyphs that they show.
struct Frame {
    number: u64,
    corners: Vec<Corner>,
    indices: Vec<u32>,
    atlas: (u64, Arc<ColorImage>),
}

/// Some triangles of a frame.
struct Part {
    frame: Arc<Frame>,
    indices: Range<u32>,
}

impl CallbackTrait for Part {
    fn prepare(
        &self,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        _: &ScreenDescriptor,
        _: &mut wgpu::CommandEncoder,
        resources: &mut CallbackResources,
    ) -> Vec<wgpu::CommandBuffer> {
        if let Some(brush) = resources.get_mut::<Brush>() {
            brush.load(device, queue, &self.frame);
        }
        Vec::new()
    }

    fn paint(
        &self,
        _: egui::PaintCallbackInfo,
        pass: &mut wgpu::RenderPass<'static>,
        resources: &CallbackResources,
    ) {
        if let Some(Brush { pipeline, atlas: Some(atlas), corners, indices, .. }) = resources.get()
        {
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &atlas.1, &[]);
            pass.set_vertex_buffer(0, corners.slice(..));
            pass.set_index_buffer(indices.slice(..), wgpu::IndexFormat::Uint32);
            pass.draw_indexed(self.indices.clone(), 0, 0..1);
        }
    }
}

/// The shader and what it paints.
struct Brush {
    pipeline: wgpu::RenderPipeline,
    /// The glyphs of this version.
    atlas: Option<(u64, wgpu::BindGroup)>,
    corners: wgpu::Buffer,
    indices: wgpu::Buffer,
    /// The frame that the buffers hold.
    loaded: u64,
}

impl Brush {
    fn new(device: &wgpu::Device, format: wgpu::TextureFormat) -> Self {
        let corners = buffer(device, wgpu::BufferUsages::VERTEX, STRIDE);
        let indices = buffer(device, wgpu::BufferUsages::INDEX, 4);
        Self { pipeline: pipeline(device, format), atlas: None, corners, indices, loaded: 0 }
    }

    /// Loads the triangles of a frame once, and the glyphs when there are new ones.
    fn load(&mut self, device: &wgpu::Device, queue: &wgpu::Queue, frame: &Frame) {
        if self.loaded == frame.number {
            return;
        }
        self.loaded = frame.number;
        let corners: &[u8] = bytemuck::cast_slice(&frame.corners);
        let indices: &[u8] = bytemuck::cast_slice(&frame.indices);
        for (held, bytes, usage) in [
            (&mut self.corners, corners, wgpu::BufferUsages::VERTEX),
            (&mut self.indices, indices, wgpu::BufferUsages::INDEX),
        ] {
            if held.size() < bytes.len() as u64 {
                *held = buffer(device, usage, (bytes.len() as u64).next_power_of_two());
            }
            queue.write_buffer(held, 0, bytes);
        }
        let (version, image) = &frame.atlas;
        if self.atlas.as_ref().is_none_or(|(held, _)| held != version) {
            let layout = self.pipeline.get_bind_group_layout(0);
            self.atlas = Some((*version, glyphs(device, queue, (image, &layout))));
        }
    }
}

fn buffer(device: &wgpu::Device, usage: wgpu::BufferUsages, size: u64) -> wgpu::Buffer {
    device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("triangles of the window"),
        size,
        usage: usage | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    })
}

fn glyphs(
    device: &wgpu::Device,
    queue: &wgpu::Queue,
    (image, layout): (&ColorImage, &wgpu::BindGroupLayout),
) -> wgpu::BindGroup {
    use wgpu::util::{DeviceExt as _, TextureDataOrder};
    let [width, height] = image.size.map(|size| size as u32);
    let descriptor = wgpu::TextureDescriptor {
        label: Some("glyphs of the window"),
        size: wgpu::Extent3d { width, height, depth_or_array_layers: 1 },
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format: wgpu::TextureFormat::Rgba8Unorm,
        usage: wgpu::TextureUsages::TEXTURE_BINDING,
        view_formats: &[],
    };
    let order = TextureDataOrder::LayerMajor;
    let texture = device.create_texture_with_data(queue, &descriptor, order, image.as_raw());
    let view = texture.create_view(&wgpu::TextureViewDescriptor::default());
    device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some("glyphs of the window"),
        layout,
        entries: &[wgpu::BindGroupEntry {
            binding: 0,
            resource: wgpu::BindingResource::TextureView(&view),
        }],
    })
}

fn pipeline(device: &wgpu::Device, format: wgpu::TextureFormat) -> wgpu::RenderPipeline {
    let module = device.create_shader_module(wgpu::include_wgsl!("software.wgsl"));
    let attributes = wgpu::vertex_attr_array![0 => Float32x2, 1 => Float32x2, 2 => Unorm8x4];
    // As egui blends: colours are premultiplied.
    let blend = wgpu::BlendState {
        color: wgpu::BlendState::PREMULTIPLIED_ALPHA_BLENDING.color,
        alpha: wgpu::BlendComponent {
            src_factor: wgpu::BlendFactor::OneMinusDstAlpha,
            dst_factor: wgpu::BlendFactor::One,
            operation: wgpu::BlendOperation::Add,
        },
    };
    let target =
        wgpu::ColorTargetState { format, blend: Some(blend), write_mask: wgpu::ColorWrites::ALL };
    device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
        label: Some("the window on software"),
        layout: None,
        vertex: wgpu::VertexState {
            module: &module,
            entry_point: Some("corner"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            buffers: &[Some(wgpu::VertexBufferLayout {
                array_stride: STRIDE,
                step_mode: wgpu::VertexStepMode::Vertex,
                attributes: &attributes,
            })],
        },
        primitive: wgpu::PrimitiveState::default(),
        depth_stencil: None,
        multisample: wgpu::MultisampleState::default(),
        fragment: Some(wgpu::FragmentState {
            module: &module,
            entry_point: Some("pixel"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            targets: &[Some(target)],
        }),
        multiview_mask: None,
        cache: None,
    })
}
