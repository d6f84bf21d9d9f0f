package dev.edgedec.core

/** Token ids of a text that grows and shrinks at its end. */
class Tokens(first: IntArray = IntArray(0)) {
    private var ids = first.copyOf(maxOf(64, 2 * first.size))

    var size = first.size
        private set

    operator fun get(index: Int): Int {
        if (index >= size) throw IndexOutOfBoundsException("token $index of $size")
        return ids[index]
    }

    fun last(): Int = get(size - 1)

    fun add(token: Int) {
        if (size == ids.size) ids = ids.copyOf(2 * size)
        ids[size++] = token
    }

    fun add(tokens: IntArray) {
        if (size + tokens.size > ids.size) ids = ids.copyOf(2 * (size + tokens.size))
        tokens.copyInto(ids, size)
        size += tokens.size
    }

    /** Forgets all tokens after the first [length]. */
    fun cut(length: Int) {
        size = minOf(size, length)
    }

    /** Returns a copy of the tokens from [from], up to but not including [until]. */
    fun slice(from: Int = 0, until: Int = size): IntArray {
        if (until > size) throw IndexOutOfBoundsException("tokens $from to $until of $size")
        return ids.copyOfRange(from, until)
    }

    /** Returns the length of the common prefix. */
    fun shared(other: Tokens): Int {
        val most = minOf(size, other.size)
        for (index in 0 until most) if (ids[index] != other.ids[index]) return index
        return most
    }
}
