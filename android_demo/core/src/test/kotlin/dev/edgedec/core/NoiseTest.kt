package dev.edgedec.core

import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.security.MessageDigest
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import kotlinx.serialization.json.long
import org.junit.jupiter.api.Assertions.assertArrayEquals
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNotEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

class NoiseTest {
    private val file = vectorFile("noise.json")

    @Test
    fun `keys and uniform numbers are Python's`() {
        for (case in file.list("streams").map { it.jsonObject }) {
            val streams = Streams(case.long("seed"))
            val purpose = Purpose.entries[case.int("purpose")]
            assertEquals(case.key(), streams.key(case.int("position"), purpose, case.long("index")))
            assertEquals(case.double("uniform"), streams.uniform(case.int("position"), purpose, case.long("index")))
        }
    }

    @Test
    fun `noise is Python's, bit for bit`() {
        for (case in file.list("noise").map { it.jsonObject }) {
            val noise = Noise(case.key(), case.int("vocab_size"))
            val largeIds = case.ints("large_ids")
            assertArrayEquals(largeIds, noise.largeIds.copyOf(largeIds.size))
            assertEquals(case.int("large_count"), noise.largeIds.size)
            val all = noise.all()
            val first = case.list("first").map { it.jsonPrimitive.long.toInt() }
            assertEquals(first, all.take(first.size).map { it.toRawBits() })
            assertEquals(case.text("sha256"), sha256(all))
            assertEquals(case.int("most_id"), mostLikely(all))
        }
    }

    @Test
    fun `a digest of the RFC's own algorithm`() {
        // hashlib.blake2b(b"abc", digest_size=8)
        assertEquals("d8bb14d833d59559", hex(Blake2b.digest8("abc".toByteArray())))
    }

    @Test
    fun `a token's noise does not depend on what was asked before`() {
        val all = Noise(7, 20_000).all()
        val lazy = Noise(7, 20_000)
        for (token in all.indices) assertEquals(all[token], lazy.of(token))
        assertArrayEquals(lazy.largeIds, all.indices.filter { all[it] >= LARGE_FROM.toFloat() }.toIntArray())
    }

    @Test
    fun `draft and target share noise where they are coupled`() {
        val coupled = Streams(3)
        assertTrue(coupled.noise(5, 100, Purpose.DRAFT) === coupled.noise(5, 100, Purpose.TARGET))
        val apart = Streams(3, coupled = false)
        assertNotEquals(apart.noise(5, 100, Purpose.DRAFT).of(0), apart.noise(5, 100, Purpose.TARGET).of(0))
    }

    @Test
    fun `a position that is no longer kept has the same noise again`() {
        fun sameAgain(streams: Streams): Boolean {
            val first = streams.noise(0, 50, Purpose.TARGET).all()
            for (position in 1..100) streams.noise(position, 50, Purpose.TARGET)
            return first.contentEquals(streams.noise(0, 50, Purpose.TARGET).all())
        }
        assertTrue(sameAgain(Streams(1)))
        assertTrue(!sameAgain(StreamsByCall(1)))
    }

    private fun sha256(values: FloatArray): String {
        val bytes = ByteBuffer.allocate(4 * values.size).order(ByteOrder.LITTLE_ENDIAN)
        for (value in values) bytes.putFloat(value)
        return MessageDigest.getInstance("SHA-256").digest(bytes.array()).joinToString("") { "%02x".format(it) }
    }

    private fun hex(digest: Long): String = "%016x".format(java.lang.Long.reverseBytes(digest))
}
