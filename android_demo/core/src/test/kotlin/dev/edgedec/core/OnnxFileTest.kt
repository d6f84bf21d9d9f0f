package dev.edgedec.core

import java.io.ByteArrayOutputStream
import java.io.File
import java.nio.ByteBuffer
import java.nio.file.Files
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.io.TempDir

/** A message with these fields: numbers, texts or messages. */
private fun message(vararg fields: Pair<Int, Any>): ByteArray {
    val out = ByteArrayOutputStream()
    fun varint(value: Long) {
        var left = value
        while (left ushr 7 != 0L) {
            out.write((left and 127 or 128).toInt())
            left = left ushr 7
        }
        out.write(left.toInt())
    }
    for ((number, value) in fields) {
        if (value is Number) {
            varint(number.toLong() shl 3)
            varint(value.toLong())
        } else {
            val data = if (value is String) value.toByteArray() else value as ByteArray
            varint((number.toLong() shl 3) or 2)
            varint(data.size.toLong())
            out.write(data)
        }
    }
    return out.toByteArray()
}

private fun entry(key: String, value: String) = message(1 to key, 2 to value)

private fun tensor(location: String, offset: Int = 0, length: Int = 4) = message(
    8 to "weight",
    13 to entry("location", location),
    13 to entry("offset", "$offset"),
    13 to entry("length", "$length"),
)

class OnnxFileTest {
    @TempDir
    lateinit var temporary: File

    private val folder get() = File(temporary, "model").apply { mkdirs() }

    private val file get() = File(folder, "model.onnx")

    private fun write(vararg model: Pair<Int, Any>) = file.writeBytes(message(*model))

    @Test
    fun `the demo's graphs are read`() {
        for (role in Bundle.open(demoBundle).let { listOfNotNull(it.target, it.draft) }) {
            val found = OnnxFile.read(role.model, role.files)
            assertTrue("\"graph_version\"" in found.metadata.getValue("edgedec"))
            assertEquals(role.files[1].length(), found.weightBytes, 1e5)
        }
    }

    private fun assertEquals(expected: Long, found: Long, within: Double) =
        assertEquals(expected.toDouble(), found.toDouble(), within)

    @Test
    fun `weights are found in attributes, functions and training`() {
        File(folder, "a").writeBytes(ByteArray(8))
        val node = message(5 to message(6 to message(5 to message(9 to "56789"))))
        val graph = message(1 to node, 5 to message(9 to "1234"), 15 to message(1 to tensor("a", 4)))
        val function = message(7 to message(5 to message(5 to message(9 to "ab"))))
        write(7 to graph, 14 to entry("edgedec", "{}"), 20 to message(1 to message(5 to tensor("a"))), 25 to function)
        val found = OnnxFile.read(file)
        assertEquals(mapOf("edgedec" to "{}"), found.metadata)
        assertEquals(19L, found.weightBytes)
    }

    @Test
    fun `weights elsewhere are refused`() {
        val outside = File(temporary, "outside").apply { writeBytes(ByteArray(9)) }
        File(folder, "beside").writeBytes(ByteArray(9))
        val escapes = listOf("../outside", outside.absolutePath, "x/../../outside", "C:\\x", "a\u0000b")
        for (name in escapes) {
            write(7 to message(5 to tensor(name)))
            refused<BundleException>("lead out of its folder") { OnnxFile.read(file) }
        }
        Files.createSymbolicLink(File(folder, "link").toPath(), outside.toPath())
        write(7 to message(5 to tensor("link")))
        refused<BundleException>("lead out of its folder") { OnnxFile.read(file) }
        write(7 to message(5 to tensor("beside")))
        OnnxFile.read(file)
        OnnxFile.read(file, listOf(file, File(folder, "beside")))
        refused<BundleException>("'beside', which the manifest does not list") { OnnxFile.read(file, listOf(file)) }
        write(7 to message(5 to tensor("beside", 6)))
        refused<BundleException>("9 bytes, expected 10: cut short") { OnnxFile.read(file) }
        for (name in listOf("nothing", "")) {
            write(7 to message(5 to tensor(name)))
            refused<BundleException>("weights are missing") { OnnxFile.read(file) }
        }
        write(7 to message(5 to tensor("beside", length = -1)))
        refused<BundleException>("damaged") { OnnxFile.read(file) }
    }

    @Test
    fun `a graph that is nested or large without end is refused`() {
        var graph = message(1 to message(4 to "Add"))
        repeat(100) { graph = message(1 to message(5 to message(6 to graph))) }
        write(7 to graph)
        refused<BundleException>("damaged") { OnnxFile.read(file) }
        file.writeBytes(ByteArray(2 shl 20) { if (it % 2 == 0) 8 else 1 })
        refused<BundleException>("more than ${Protobuf.MAX_FIELDS} fields") { OnnxFile.read(file) }
        write(14 to entry("k", "x".repeat(20 shl 20)))
        refused<BundleException>("damaged") { OnnxFile.read(file) }
        refused<BundleException>("cannot be read") { OnnxFile.read(File(folder, "nothing")) }
    }

    @Test
    fun `a damaged graph is read or refused in one sentence`() {
        val whole = File(demoBundle, "draft/model.onnx").readBytes()
        File(demoBundle, "draft/model.onnx.data").copyTo(File(folder, "model.onnx.data"))
        var refusals = 0
        draws(400) { random ->
            val changed = if (random.nextBoolean()) whole.copyOf(random.nextInt(whole.size)) else whole.copyOf()
            val changes = if (changed.isEmpty()) 0 else random.nextInt(3)
            repeat(changes) { changed[random.nextInt(changed.size)] = random.nextInt().toByte() }
            file.writeBytes(changed)
            try {
                OnnxFile.read(file)
            } catch (_: BundleException) {
                refusals++
            }
        }
        assertTrue(refusals > 100, "$refusals")
    }

    @Test
    fun `numbers of ten bytes are read, longer ones refused`() {
        fun count(vararg bytes: Int): Int {
            var found = 0
            val buffer = ByteBuffer.wrap(ByteArray(bytes.size) { bytes[it].toByte() })
            Protobuf(buffer).let { it.each(it.whole) { _, _ -> found++ } }
            return found
        }
        val nine = IntArray(9) { 255 }
        assertEquals(1, count(8, *nine, 1))
        val wrong = listOf(
            intArrayOf(8, *nine, 2),
            intArrayOf(8, *nine, 129, 0),
            intArrayOf(10, *nine, 1),
            intArrayOf(8, 255),
            intArrayOf(7),
        )
        for (bytes in wrong) assertThrows(DamagedMessage::class.java) { count(*bytes) }
    }
}
