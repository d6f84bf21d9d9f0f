package dev.edgedec.core

import java.io.ByteArrayInputStream
import java.io.File
import java.io.FileNotFoundException
import java.io.IOException
import java.io.InputStream
import java.security.MessageDigest
import kotlinx.serialization.json.JsonPrimitive
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.io.TempDir

/** A bundle in memory. */
private class Made(val files: MutableMap<String, ByteArray>) : Source {
    val opened = ArrayList<String>()

    override fun open(name: String): InputStream {
        opened += name
        return ByteArrayInputStream(files[name] ?: throw FileNotFoundException(name))
    }

    override fun size(name: String): Long? = files[name]?.size?.toLong()
}

private fun sha256(data: ByteArray) = MessageDigest.getInstance("SHA-256").digest(data).hex()

private fun made(vararg more: Pair<String, ByteArray>): Made {
    val files = linkedMapOf(
        "target/model.onnx" to "graph".toByteArray(),
        "target/model.onnx.data" to ByteArray(200_000) { it.toByte() },
        "tokenizer/tokenizer.json" to "{}".toByteArray(),
        *more,
    )
    val facts = files.entries.joinToString { (name, data) ->
        "${JsonPrimitive(name)}: {\"sha256\": \"${sha256(data)}\", \"bytes\": ${data.size}}"
    }
    val manifest = """{"schema_version": 2, "files": {$facts}, "roles": {"target": {
        "architecture": "llama", "source": "tiny", "dims": {"layers": 2},
        "tokenizer": {"file": "tokenizer/tokenizer.json", "content_sha256": "0"},
        "variants": {"onnx": {"file": "target/model.onnx", "files": ["target/model.onnx", "target/model.onnx.data"],
        "weights": "int4", "kv": "fp32"}}}}}"""
    return Made((files + ("manifest.json" to manifest.toByteArray())).toMutableMap())
}

class BundleImportTest {
    @TempDir
    lateinit var temporary: File

    private val library get() = File(temporary, "bundles")

    private fun importer(free: Long = Long.MAX_VALUE) = BundleImport(library) { free }

    private fun leftovers(): List<String> = library.list().orEmpty().toList()

    @Test
    fun `a bundle is copied whole`() {
        val source = made()
        source.files["target/unlisted"] = ByteArray(9)
        val steps = ArrayList<Pair<Long, Long>>()
        val folder = importer().copy(source, progress = { done, total -> steps += done to total })
        assertEquals(library, folder.parentFile)
        assertEquals(sha256(source.files.getValue("manifest.json")), folder.name)
        val files = folder.walk().filter { it.isFile }
            .associate { it.relativeTo(folder).path to it.readBytes().toList() }
        assertEquals((source.files - "target/unlisted").mapValues { it.value.toList() }, files)
        assertEquals("target", Bundle.open(folder, verify = true).target.name)
        val total = 200_000L + "graph".length + 2
        assertEquals(0L to total, steps.first())
        assertEquals(total to total, steps.last())
        assertEquals(steps.sortedBy { it.first }, steps)
        assertFalse("target/unlisted" in source.opened)
    }

    @Test
    fun `a bundle that is there is used again`() {
        val folder = importer().copy(made())
        val again = made()
        assertEquals(folder, importer(free = 0).copy(again))
        assertEquals(listOf("manifest.json"), again.opened)
        File(folder, "target/model.onnx").writeText("other")
        assertEquals(folder, importer().copy(made()))
        Bundle.open(folder, verify = true)
    }

    @Test
    fun `what an ended app left is removed`() {
        File(library, "0.part/target").mkdirs()
        val folder = importer().copy(made())
        assertEquals(listOf(folder.name), leftovers())
    }

    @Test
    fun `space is asked for first`() {
        val source = made()
        refused<BundleException>("are free: make room") { importer(free = 200_000).copy(source) }
        assertEquals(listOf("manifest.json"), source.opened)
        assertEquals(emptyList<String>(), leftovers())
        importer(free = 200_007).copy(source)
    }

    /** Ends an import at its nth question; returns how many there were until it ended. */
    private fun cancelled(at: Int, importer: BundleImport): Int {
        var asked = 0
        try {
            importer.copy(made(), cancelled = { asked++ == at })
        } catch (_: ImportCancelled) {
            return -1
        }
        return asked
    }

    private fun leavesNothing(importer: BundleImport) {
        var at = 0
        while (cancelled(at++, importer) < 0) {
            if (leftovers().isNotEmpty()) throw AssertionError("cancelled at question $at, left ${leftovers()}")
        }
        assertTrue(at > 5, "questions: $at")
    }

    @Test
    fun `an import that is cancelled anywhere leaves nothing`() {
        leavesNothing(importer())
        assertEquals(1, leftovers().size)
    }

    @Test
    fun `an importer that leaves its files is flagged`() {
        // Stands for a missing removal: the folder of an earlier import is put back when the next one asks for space.
        val careless = BundleImport(library) { Long.MAX_VALUE.also { File(library, "left").mkdirs() } }
        mustFlag { leavesNothing(careless) }
    }

    @Test
    fun `an import that fails anywhere leaves nothing`() {
        for (name in made().files.keys - "manifest.json") for (after in listOf(0, 1, 100_000)) {
            val source = made()
            val failing = object : Source by source {
                override fun open(name2: String): InputStream =
                    if (name2 == name) Failing(source.files.getValue(name), after) else source.open(name2)
            }
            if (after < source.files.getValue(name).size) {
                refused<BundleException>("'$name' cannot be read: the card was taken out") { importer().copy(failing) }
            }
            assertEquals(emptyList<String>(), leftovers().filter { it.endsWith(".part") })
            library.deleteRecursively()
        }
    }

    private class Failing(data: ByteArray, private var left: Int) : InputStream() {
        private val inner = ByteArrayInputStream(data)

        override fun read(): Int = if (left-- > 0) inner.read() else throw IOException("the card was taken out")
    }

    @Test
    fun `a source that lies is refused`() {
        fun changed(change: (MutableMap<String, ByteArray>) -> Unit) = made().also { change(it.files) }
        val name = "target/model.onnx"
        val wrong = mapOf(
            "'$name' was altered" to changed { it[name] = "other".toByteArray() },
            "'$name' has 4 bytes, the manifest says 5" to changed { it[name] = "grap".toByteArray() },
            "'$name' is missing" to changed { it.remove(name) },
            "'manifest.json' is missing" to changed { it.remove("manifest.json") },
            "not a JSON object" to changed { it["manifest.json"] = "x".toByteArray() },
            "larger than 1 MiB" to changed { it["manifest.json"] = ByteArray(5 shl 20) { ' '.code.toByte() } },
        )
        for ((words, source) in wrong) {
            refused<BundleException>(words) { importer().copy(source) }
            // Sizes that are only known when all was read.
            val silent = object : Source {
                override fun open(name: String): InputStream = source.open(name)
            }
            refused<BundleException>(words) { importer().copy(silent) }
            assertEquals(emptyList<String>(), leftovers())
        }
        val endless = object : Source by made() {
            override fun open(name: String): InputStream =
                if (name == "target/model.onnx.data") Endless() else made().open(name)
        }
        refused<BundleException>("has more bytes, the manifest says 200000") { importer().copy(endless) }
    }

    private class Endless : InputStream() {
        override fun read(): Int = 0
        override fun read(into: ByteArray, from: Int, count: Int): Int = count
    }

    /** Draws names of files, of which those that are taken must be in the folder under the same name. */
    private fun staysInside(isTaken: (String) -> Boolean) = draws(1000) { random ->
        val parts = listOf("..", ".", "", "a", "b.c", "\\", "C:", "\u0000", "\n", "~", " ", "\u202e", "x".repeat(99))
        val name = List(1 + random.nextInt(4)) { parts[random.nextInt(parts.size)] }.joinToString("/")
        if (!isTaken(name)) return@draws
        val root = File("/library/bundle")
        val plain = File(root, name).normalize()
        val same = plain.startsWith(root) && plain != root && plain.relativeTo(root).path == name
        if (!same || name.any { it.isISOControl() || it in "\\:" }) throw AssertionError("takes '$name'")
    }

    private fun isTaken(name: String): Boolean = try {
        importer().copy(made(name to "x".toByteArray()))
        true
    } catch (error: BundleException) {
        assertTrue("is not a path inside the bundle" in error.message.orEmpty(), error.message)
        assertEquals(emptyList<String>(), leftovers().filter { it.endsWith(".part") })
        false
    }

    @Test
    fun `no path leaves the folder`() {
        staysInside(::isTaken)
        assertEquals(setOf("bundles"), temporary.list().orEmpty().toSet())
        assertTrue(leftovers().size > 5, "${leftovers().size}")
    }

    @Test
    fun `readers that look for less are flagged`() {
        mustFlag { staysInside { !it.startsWith("/") && ".." !in it } }
        mustFlag { staysInside { File("/library/bundle", it).normalize().startsWith("/library/bundle") } }
    }

    @Test
    fun `a file that is another's folder is refused`() {
        val source = made("target/model.onnx/x" to "x".toByteArray())
        refused<BundleException>("cannot be written") { importer().copy(source) }
        assertEquals(emptyList<String>(), leftovers())
    }

    @Test
    fun `an error of the caller's progress leaves nothing`() {
        assertThrows(IllegalStateException::class.java) {
            importer().copy(made(), progress = { done, _ -> check(done < 100_000) })
        }
        assertEquals(emptyList<String>(), leftovers())
    }
}
