package dev.edgedec.core

import java.nio.ByteBuffer
import java.nio.charset.CharacterCodingException

/** The bytes are not a protobuf message. */
internal class DamagedMessage : Exception()

/** A file has more fields than are read. */
internal class TooManyFields : Exception()

/** Where bytes begin and end. */
internal data class Span(val start: Int, val end: Int)

/**
 * Reads protobuf messages without a schema: fields one after the other, each a number and a value.
 *
 * @throws DamagedMessage from every function
 * @throws TooManyFields the messages that were read have more than [MAX_FIELDS] fields together
 */
internal class Protobuf(private val content: ByteBuffer) {
    val whole = Span(0, content.limit())
    private var left = MAX_FIELDS
    private var at = 0

    /** Calls [field] with the number of each field, and where its bytes are; null for a number. */
    fun each(span: Span, field: (Int, Span?) -> Unit) {
        var next = span.start
        while (next < span.end) {
            val tag = tagAt(next, span.end)
            val value = valueAt(tag, span.end)
            next = value.second
            field((tag ushr 3).toInt(), value.first)
        }
    }

    /** A text of a bounded size. */
    fun text(span: Span?): String {
        if (span == null || span.end - span.start > MAX_TEXT_BYTES) throw DamagedMessage()
        val bytes = content.duplicate()
        bytes.limit(span.end).position(span.start)
        return try {
            Charsets.UTF_8.newDecoder().decode(bytes).toString()
        } catch (_: CharacterCodingException) {
            throw DamagedMessage()
        }
    }

    private fun tagAt(start: Int, end: Int): Long {
        if (left-- == 0) throw TooManyFields()
        at = start
        // A runtime may keep the lower 32 bits only, and so read another field than is read here.
        return varint(end).also { if (it !in 8 until (1L shl 32)) throw DamagedMessage() }
    }

    /** The bytes of a field, if it has a length, and where the next field begins. */
    private fun valueAt(tag: Long, end: Int): Pair<Span?, Int> {
        val wire = (tag and 7).toInt()
        val size = when (wire) {
            VARINT -> {
                varint(end)
                0
            }
            FIXED64 -> 8
            FIXED32 -> 4
            BYTES -> varint(end)
            else -> throw DamagedMessage()
        }
        // Unsigned: a negative one would be larger than any file.
        if (size < 0 || size > end - at) throw DamagedMessage()
        val start = at
        at += size.toInt()
        return (if (wire == BYTES) Span(start, at) else null) to at
    }

    private fun varint(end: Int): Long {
        var value = 0L
        for (index in 0 until 10) {
            if (at >= end) throw DamagedMessage()
            val byte = content.get(at++).toInt()
            if (index == 9 && byte !in 0..1) throw DamagedMessage()
            value = value or ((byte and 127).toLong() shl (7 * index))
            if (byte >= 0) return value
        }
        throw DamagedMessage()
    }

    companion object {
        /** A decoder layer has some 400 fields; this many take a second or two to read. */
        const val MAX_FIELDS = 1 shl 19
        private const val MAX_TEXT_BYTES = 1 shl 20
        private const val VARINT = 0
        private const val FIXED64 = 1
        private const val BYTES = 2
        private const val FIXED32 = 5
    }
}
