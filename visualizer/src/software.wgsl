// Triangles with a colour at each corner, and glyphs: for adapters that run on the host's cores.
// Positions are those of the clip space already; colours are premultiplied and as the screen shows
// them.

struct Corner {
    @builtin(position) position: vec4<f32>,
    @location(0) texel: vec2<f32>,
    @location(1) colour: vec4<f32>,
}

@group(0) @binding(0) var atlas: texture_2d<f32>;

@vertex
fn corner(
    @location(0) position: vec2<f32>,
    @location(1) texel: vec2<f32>,
    @location(2) colour: vec4<f32>,
) -> Corner {
    return Corner(vec4<f32>(position, 0.0, 1.0), texel, colour);
}

@fragment
fn pixel(corner: Corner) -> @location(0) vec4<f32> {
    // The first texel is white: all that is no glyph.
    if corner.texel.x + corner.texel.y == 0.0 {
        return corner.colour;
    }
    return corner.colour * textureLoad(atlas, vec2<i32>(corner.texel), 0);
}
