// out = silu(x Wg^T) * (x Wu^T) for Hopper, where W holds the rows of Wg and then those of Wu.
//
// A cluster of two blocks computes a tile of 256 rows, each block half of them: it loads its own rows of x, and half of
// the rows of W, which go to both blocks' memory.  In a block, one thread loads and two groups of four warps multiply.
//
// Built with these names defined:
//   OUTS     rows of W in a tile, half of them of Wg; a multiple of 32, at most 256
//   STAGES   pieces of 64 inputs that are on their way at a time
//   GROUP    tiles of rows that share what they load of W while it is in the cache
//   CONVERT  the instruction that rounds two numbers to 16 bits
//   MULTIPLY(d, x, w, adds), WAIT(d)   the product of a piece, and the wait for all products under way
typedef unsigned int u32;
typedef unsigned long long u64;
struct alignas(64) TensorMap { unsigned char bytes[128]; };

#define ROWS 128
#define GROUP_ROWS 64
#define DEPTH 64
#define WIDTH (OUTS / 2)
#define ROW_BYTES (DEPTH * 2)
#define X_BYTES (ROWS * ROW_BYTES)
#define W_BYTES (OUTS * ROW_BYTES)
#define PIECE_BYTES (X_BYTES + W_BYTES)
// Results of a row as they lie in shared memory: padded, so that rows begin in different banks.
#define PITCH (WIDTH * 2 + 16)

static __device__ __forceinline__ u32 address_of(const void* p) { return (u32)__cvta_generic_to_shared(p); }

static __device__ __forceinline__ void barrier_init(u32 barrier, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}
static __device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
static __device__ __forceinline__ void barrier_wait(u32 barrier, u32 phase) {
  asm volatile(
      "{\n.reg .pred p;\nL_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra L_%=;\n}" ::"r"(barrier), "r"(phase) : "memory");
}
// At the barrier of one of the two blocks.  Nothing was written that the other would have to see, so no fence is asked
// for (`.release.cluster`): it would wait for all memory of the device, in every step.
static __device__ __forceinline__ void barrier_arrive_at(u32 barrier, u32 rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier), "r"(rank) : "memory");
}
static __device__ __forceinline__ void load(u32 to, const TensorMap* map, int input, int row, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(input), "r"(row) : "memory");
}
static __device__ __forceinline__ void load_for_both(u32 to, const TensorMap* map, int input, int row, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(input), "r"(row), "h"((unsigned short)3) : "memory");
}
// What a product reads: rows of 128 bytes, swizzled as the loads leave them, 1,024 bytes from eight rows to the next.
static __device__ __forceinline__ u64 describe(u32 address) {
  return (u64)((address & 0x3FFFF) >> 4) | ((u64)1 << 16) | ((u64)(1024 >> 4) << 32) | ((u64)1 << 62);
}
static __device__ __forceinline__ u32 rounded(float low, float high) {
  u32 both;
  asm(CONVERT " %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
static __device__ __forceinline__ float silu(float x) {
  float power, share;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -1.4426950408889634f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(share) : "f"(1.0f + power));
  return x * share;
}
static __device__ __forceinline__ void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
static __device__ __forceinline__ void sync_group(int group) {
  asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

struct Place { int row, out; };
// Tiles in the order in which clusters take them.
static __device__ __forceinline__ Place place_of(int tile, int row_tiles, int out_tiles) {
  int first = tile / (GROUP * out_tiles) * GROUP, inside = tile - first * out_tiles;
  int rows = min(GROUP, row_tiles - first);
  return {first + inside % rows, inside / rows};
}

extern "C" __global__ void __launch_bounds__(384, 1) __cluster_dims__(2, 1, 1)
gated_product(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap w_map, unsigned short* out,
              int num_rows, int width, int num_inputs) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const u32 x_pieces = address_of(shared), w_pieces = x_pieces + STAGES * X_BYTES;
  const u32 results = w_pieces + STAGES * W_BYTES, full = results + 2 * GROUP_ROWS * PITCH, empty = full + STAGES * 8;
  const int thread = threadIdx.x, group = thread / 128;
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (thread == 0) {
    for (int stage = 0; stage < STAGES; stage++) {
      barrier_init(full + stage * 8, 1);
      // The two groups of both blocks.
      barrier_init(empty + stage * 8, 4);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  sync_cluster();
  const int row_tiles = (num_rows + 2 * ROWS - 1) / (2 * ROWS), out_tiles = (width + WIDTH - 1) / WIDTH;
  const int tiles = row_tiles * out_tiles, steps = num_inputs / DEPTH;
  const int clusters = gridDim.x / 2, cluster = blockIdx.x / 2;

  if (group == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (thread == 256) {
      int count = 0, ahead = 0;
      // Weights wait for nobody: the first are on their way before the kernel in front has ended.
      if (cluster < tiles) {
        int w_row = place_of(cluster, row_tiles, out_tiles).out * WIDTH + rank * width;
        ahead = min(STAGES, steps);
        for (int step = 0; step < ahead; step++) barrier_expect(full + step * 8, PIECE_BYTES);
        for (int step = 0; step < ahead; step++)
          load_for_both(w_pieces + step * W_BYTES + rank * W_BYTES / 2, &w_map, step * DEPTH, w_row, full + step * 8);
      }
      asm volatile("griddepcontrol.wait;" ::: "memory");
      for (int tile = cluster; tile < tiles; tile += clusters) {
        Place place = place_of(tile, row_tiles, out_tiles);
        int x_row = place.row * 2 * ROWS + rank * ROWS;
        // Block 0 loads rows of Wg, block 1 those of Wu.
        int w_row = place.out * WIDTH + rank * width;
        for (int step = 0; step < steps; step++, count++) {
          int stage = count % STAGES;
          u32 barrier = full + stage * 8;
          if (count >= ahead) {
            barrier_wait(empty + stage * 8, (count / STAGES - 1) & 1);
            barrier_expect(barrier, PIECE_BYTES);
            load_for_both(w_pieces + stage * W_BYTES + rank * W_BYTES / 2, &w_map, step * DEPTH, w_row, barrier);
          }
          load(x_pieces + stage * X_BYTES, &x_map, step * DEPTH, x_row, barrier);
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
    const int lane = thread % 32, warp = thread % 128 / 32;
    const u32 group_results = results + group * GROUP_ROWS * PITCH;
    float d[OUTS / 2];
    int count = 0;
    for (int tile = cluster; tile < tiles; tile += clusters) {
      Place place = place_of(tile, row_tiles, out_tiles);
      for (int step = 0; step < steps; step++, count++) {
        int stage = count % STAGES;
        barrier_wait(full + stage * 8, (count / STAGES) & 1);
        u64 x = describe(x_pieces + stage * X_BYTES + group * GROUP_ROWS * ROW_BYTES);
        u64 w = describe(w_pieces + stage * W_BYTES);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int part = 0; part < DEPTH / 16; part++) {
          int adds = step > 0 || part > 0;
          MULTIPLY(d, x + part * 2, w + part * 2, adds);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        if (step > 0) {
          // The piece before this one is done with.
          asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
          if (thread % 128 < 2) barrier_arrive_at(empty + (count - 1) % STAGES * 8, thread % 128);
        }
      }
      WAIT(d);
      if (thread % 128 < 2) barrier_arrive_at(empty + (count - 1) % STAGES * 8, thread % 128);
      // A warp has 16 rows: four blocks of 8 by 8 results a store, from the registers of a product.
      u32 to = group_results + (warp * 16 + lane % 16) * PITCH + lane / 16 * 16;
#pragma unroll
      for (int block = 0; block < WIDTH / 16; block++) {
        u32 value[4];
#pragma unroll
        for (int half = 0; half < 2; half++) {
          int gate = (block * 2 + half) * 4, up = gate + WIDTH / 2;
          value[half * 2] = rounded(silu(d[gate]) * d[up], silu(d[gate + 1]) * d[up + 1]);
          value[half * 2 + 1] = rounded(silu(d[gate + 2]) * d[up + 2], silu(d[gate + 3]) * d[up + 3]);
        }
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to + block * 32),
                     "r"(value[0]), "r"(value[1]), "r"(value[2]), "r"(value[3]) : "memory");
      }
      sync_group(group);
      const int first_row = place.row * 2 * ROWS + rank * ROWS + group * GROUP_ROWS, first_out = place.out * WIDTH;
      for (int each = thread % 128; each < GROUP_ROWS * WIDTH / 8; each += 128) {
        int row = each / (WIDTH / 8), column = each % (WIDTH / 8) * 8;
        u32 a, b, c, e;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(e)
                     : "r"(group_results + row * PITCH + column * 2));
        if (first_row + row < num_rows && first_out + column < width)
          asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::
                       "l"(out + (u64)(first_row + row) * width + first_out + column),
                       "r"(a), "r"(b), "r"(c), "r"(e) : "memory");
      }
      sync_group(group);
    }
  }
  // Nobody leaves while the other block may still write into its memory.
  sync_cluster();
}
