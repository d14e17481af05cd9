// nvrtc: --relocatable-device-code=true --maxrregcount=32
// The functions that CUDA's driver provides to device code: `vprintf`, `__assertfail`, `malloc`, `free`. The loader
// links them into programs that call them (tegra-hcq, `program::runtime`, which has the same structures). They use no
// constant bank but 0, because the other banks are those of the program that calls them.

typedef unsigned long long u64;

// Filled by the host, as the structures below. It never moves, but the host may set other pointers.
struct State {
    struct Ring* volatile ring;
    struct Heap* volatile heap; // null without one
};

// Offsets grow without end; their low bits are the place.
struct Ring {
    u64 head;              // offset of the first free byte
    volatile u64 tail;     // offset of the first byte that the host has not read
    u64 lost;              // records that did not fit
    u64* words;
    u64 bytes;             // a power of two
};

struct Heap {
    char* pages;
    unsigned* states;      // one for each page
    unsigned (*maps)[8];   // a bit for each piece of a page
    u64 page_count;
    volatile u64 hints[8]; // for each size, the page that had a free piece last
};

// %envreg30 and %envreg31: words of the driver in constant bank 0.
static __device__ __forceinline__ State* state()
{
    unsigned low, high;
    asm("mov.u32 %0, %%envreg30;" : "=r"(low));
    asm("mov.u32 %0, %%envreg31;" : "=r"(high));
    State* found = (State*)((u64)high << 32 | low);
    __builtin_assume(__isGlobal(found));
    return found;
}

template <typename T> static __device__ __forceinline__ T* global(T* pointer)
{
    __builtin_assume(__isGlobal(pointer));
    return pointer;
}

// A record: a tag, its size and kind, then words. The tag is twice the offset of the record plus 2, plus 1 when the
// record is complete: what an earlier record has left in the ring is never taken for a tag.
struct Record {
    u64* words;
    unsigned mask; // of places, in words
    unsigned at;   // the next word
    u64 tag;
};

static __device__ __forceinline__ void put(Record& record, u64 word)
{
    global(record.words)[record.at++ & record.mask] = word;
}

// Reserves a record with `words` words besides the first two. Returns false if the ring is full.
static __device__ __forceinline__ bool begin(Record& record, unsigned words, unsigned kind)
{
    Ring* ring = global(state()->ring);
    u64 bytes = 8ull * (words + 3 & ~1u);
    u64 head = *(volatile u64*)&ring->head, seen;
    for (;; head = seen) {
        if (head - ring->tail + bytes > ring->bytes) {
            atomicAdd(&ring->lost, 1);
            return false;
        }
        seen = atomicCAS(&ring->head, head, head + bytes);
        if (seen == head)
            break;
    }
    record = {ring->words, (unsigned)(ring->bytes / 8) - 1, (unsigned)(head / 8), 2 * head + 2};
    put(record, record.tag);
    put(record, bytes | (u64)kind << 32);
    return true;
}

static __device__ __forceinline__ void end(const Record& record)
{
    __threadfence_system();
    unsigned first = (record.tag / 2 - 1) / 8;
    *(volatile u64*)(global(record.words) + (first & record.mask)) = record.tag + 1;
}

// Words of a string, with the zero at its end.
static __device__ __noinline__ unsigned words_of(const char* text)
{
    unsigned length = 0;
    if (text)
#pragma unroll 1
        while (text[length])
            length++;
    return length / 8 + 1;
}

static __device__ __noinline__ void copy(u64* ring, unsigned mask, unsigned at, const char* text, unsigned words)
{
    bool ended = !text;
    u64 null = 0x296c6c756e28; // "(null)"
#pragma unroll 1
    for (; words; words--) {
        u64 word = text ? 0 : null;
#pragma unroll 1
        for (unsigned shift = 0; shift < 64 && !ended; shift += 8) {
            unsigned char c = *text++;
            ended = !c;
            word |= (u64)c << shift;
        }
        global(ring)[at++ & mask] = word;
    }
}

static __device__ __forceinline__ void put_text(Record& record, const char* text, unsigned words)
{
    copy(record.words, record.mask, record.at, text, words);
    record.at += words;
}

enum { NONE, SMALL, WIDE, TEXT };

// Whether a mask has a bit for `c`; `from` is the character of the lowest bit. A jump table or a mask of 64 bits would
// lie in constant bank 2.
static __device__ __forceinline__ bool among(char c, char from, unsigned mask)
{
    unsigned bit = (unsigned char)c - from;
    return bit < 32 && mask >> bit & 1;
}

static __device__ constexpr unsigned bits(const char* characters, char from)
{
    unsigned mask = 0;
    for (; *characters; characters++)
        mask |= 1u << *characters - from;
    return mask;
}

// Moves `format` past a conversion, of which it has passed the percent sign. Returns the kind of its argument, and the
// number of `*` before it. `conversion` of the loader has the same rules.
static __device__ __noinline__ unsigned conversion(const char*& format, unsigned& stars)
{
    bool wide = false;
    char c;
    stars = 0;
#pragma unroll 1
    for (;; format++) {
        c = *format;
        if (among(c, 'a', bits("ljzt", 'a')))
            wide = true;
        else if (c == '*')
            stars++;
        else if (c != 'h' && !among(c, ' ', bits("0123456789-+ #.", ' ')))
            break;
    }
    if (c)
        format++;
    if (c == 's')
        return TEXT;
    if (among(c | 0x20, 'a', bits("fega", 'a')) || c == 'p' || c == 'n')
        return WIDE;
    if (among(c, 'a', bits("diuxo", 'a')) || c == 'X')
        return wide ? WIDE : SMALL;
    if (c == 'c')
        return SMALL;
    stars = 0;
    return NONE;
}

// The arguments of a call, in the layout of a structure.
struct Arguments {
    const char* next;

    __device__ unsigned small()
    {
        const char* at = next;
        next += 4;
        return *(const unsigned*)at;
    }

    __device__ u64 wide()
    {
        const char* at = (const char*)((u64)next + 7 & ~7ull);
        next = at + 8;
        return *(const u64*)at;
    }
};

enum { MOST_ARGUMENTS = 32, PRINTF = 0, ASSERT = 1 };

// The words of the arguments, or, with a record, puts them there. Returns their number in `count`.
template <bool WRITES>
static __device__ __forceinline__ unsigned arguments(Record& record, const char* format, const void* list, int& count)
{
    Arguments next = {(const char*)list};
    unsigned words = 0;
    count = 0;
#pragma unroll 1
    while (char c = *format) {
        format++;
        if (c != '%')
            continue;
        unsigned stars, kind = conversion(format, stars);
        if (kind == NONE)
            continue;
        if (count + stars + 1 > MOST_ARGUMENTS)
            break;
        count += stars + 1;
        words += stars;
#pragma unroll 1
        for (; stars; stars--) {
            unsigned value = next.small();
            if (WRITES)
                put(record, value);
        }
        u64 value = kind == SMALL ? next.small() : next.wide();
        if (kind == TEXT) {
            unsigned length = words_of((const char*)value);
            words += length;
            if (WRITES)
                put_text(record, (const char*)value, length);
        } else {
            words++;
            if (WRITES)
                put(record, value);
        }
    }
    return words;
}

extern "C" __device__ int orin_vprintf(const char* format, const void* list)
{
    if (!format)
        return -1;
    Record record;
    int count;
    unsigned text = words_of(format);
    unsigned words = text + arguments<false>(record, format, list, count);
    if (!begin(record, words, PRINTF))
        return -1;
    put_text(record, format, text);
    arguments<true>(record, format, list, count);
    end(record);
    return count;
}

extern "C" __device__ void orin_assertfail(const char* message, const char* file, unsigned line, const char* function,
                                           u64 char_bytes)
{
    unsigned together = __activemask();
    Record record;
    unsigned lengths[3] = {words_of(message), words_of(file), words_of(function)};
    if (begin(record, 4 + lengths[0] + lengths[1] + lengths[2], ASSERT)) {
        put(record, line | (u64)blockIdx.x << 32);
        put(record, blockIdx.y | (u64)blockIdx.z << 32);
        put(record, threadIdx.x | (u64)threadIdx.y << 32);
        put(record, threadIdx.z);
        put_text(record, message, lengths[0]);
        put_text(record, file, lengths[1]);
        put_text(record, function, lengths[2]);
        end(record);
    }
    // The trap of one thread ends the others.
    __syncwarp(together);
    asm volatile("trap;");
}

// The heap consists of pages. A page is free, or cut into pieces of one size, or part of a block of several pages. Its
// state: in the upper byte the kind, below the number of pieces in use, or of pages.
enum : unsigned { PAGE = 4096, LEAST_LOG = 4, SIZES = 8, FREE = 0, INNER = 0xfe, BLOCK = 0xff };

static __device__ __forceinline__ unsigned read(unsigned* word) { return *(volatile unsigned*)global(word); }

// A piece of size 16 << `size`.
static __device__ void* piece(Heap* heap, unsigned size)
{
    unsigned pieces = PAGE >> LEAST_LOG + size, kind = size + 1;
    u64 page = heap->hints[size];
#pragma unroll 1
    for (u64 step = 0; step < heap->page_count; step++, page = page + 1 == heap->page_count ? 0 : page + 1) {
        unsigned* state = global(&heap->states[page]);
        for (unsigned seen = read(state), before; seen == FREE || seen >> 24 == kind && (seen & 0xffff) < pieces;
             seen = before) {
            before = atomicCAS(state, seen, (seen == FREE ? kind << 24 : seen) + 1);
            if (before != seen)
                continue;
            // One of the pieces is ours.
            unsigned usable = pieces < 32 ? (1 << pieces) - 1 : ~0u;
#pragma unroll 1
            for (unsigned word = 0;; word = word + 1 & (pieces - 1) / 32) {
                unsigned* map = global(&heap->maps[page][word]);
                unsigned free = ~read(map) & usable;
                while (free) {
                    unsigned bit = free & -free, used = atomicOr(map, bit);
                    if (!(used & bit)) {
                        heap->hints[size] = page;
                        __threadfence();
                        return heap->pages + page * PAGE + ((u64)(word * 32 + __ffs(bit) - 1) << LEAST_LOG + size);
                    }
                    free = ~used & usable & ~bit;
                }
            }
        }
    }
    return 0;
}

static __device__ void* block(Heap* heap, u64 pages)
{
    bool again;
    do {
        again = false;
#pragma unroll 1
        for (u64 first = 0; first + pages <= heap->page_count;) {
            u64 have = 0;
#pragma unroll 1
            while (have < pages && read(&heap->states[first + have]) == FREE)
                have++;
            if (have < pages) {
                first += have + 1;
                continue;
            }
#pragma unroll 1
            for (have = 0; have < pages; have++)
                if (atomicCAS(global(&heap->states[first + have]), FREE, INNER << 24) != FREE)
                    break;
            if (have == pages) {
                atomicExch(global(&heap->states[first]), BLOCK << 24 | (unsigned)pages);
                __threadfence();
                return heap->pages + first * PAGE;
            }
            // Another thread was faster, and may give its pages back.
#pragma unroll 1
            while (have)
                atomicExch(global(&heap->states[first + --have]), FREE);
            again = true;
            first++;
        }
    } while (again);
    return 0;
}

extern "C" __device__ void* orin_malloc(u64 bytes)
{
    Heap* heap = global(state()->heap);
    if (!heap)
        return 0;
    if (bytes > PAGE / 2) {
        u64 pages = bytes / PAGE + (bytes % PAGE != 0);
        return pages > heap->page_count ? 0 : block(heap, pages);
    }
    unsigned size = bytes <= 16 ? 0 : 28 - __clz((unsigned)bytes - 1);
    return piece(heap, size);
}

extern "C" __device__ void orin_free(void* pointer)
{
    Heap* heap = global(state()->heap);
    if (!heap || !pointer)
        return;
    u64 offset = (char*)pointer - heap->pages, page = offset / PAGE, within = offset % PAGE;
    if (page >= heap->page_count)
        return;
    __threadfence();
    unsigned* state = global(&heap->states[page]);
    unsigned seen = read(state), kind = seen >> 24;
    if (kind == BLOCK) {
        // Freed by one thread only: the others see an inner page.
        if (within || atomicCAS(state, seen, INNER << 24) != seen)
            return;
#pragma unroll 1
        for (unsigned pages = seen & 0xffffff; pages;)
            atomicExch(state + --pages, FREE);
    } else if (kind >= 1 && kind <= SIZES) {
        unsigned log = LEAST_LOG + kind - 1, index = within >> log, bit = 1 << index % 32;
        if (within & (1 << log) - 1 || !(atomicAnd(global(&heap->maps[page][index / 32]), ~bit) & bit))
            return;
        for (unsigned before;; seen = before) {
            before = atomicCAS(state, seen, (seen & 0xffff) == 1 ? FREE : seen - 1);
            if (before == seen)
                break;
        }
    }
}
