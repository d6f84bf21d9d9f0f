package dev.edgedec.core

import java.io.File
import java.util.concurrent.TimeUnit
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.Timeout
import org.junit.jupiter.api.io.TempDir

class BundleTest {
    @TempDir
    lateinit var temporary: File

    private fun copied(): File = File(temporary, "bundle").also { demoBundle.copyRecursively(it) }

    @Test
    fun `the demo's bundle tells what it has`() {
        val bundle = Bundle.open(demoBundle, verify = true)
        assertEquals(listOf("target", "draft"), listOf(bundle.target.name, bundle.draft?.name))
        assertEquals(File(demoBundle, "target/model.onnx"), bundle.target.model)
        assertEquals(File(demoBundle, "tokenizer"), bundle.target.tokenizer)
        assertEquals(bundle.target.tokenizerHash, bundle.draft?.tokenizerHash)
        assertEquals(listOf("model.onnx", "model.onnx.data"), bundle.target.files.map { it.name }.sorted())
    }

    @Test
    fun `what is no bundle is refused`() {
        refused<BundleException>("is not a folder: give a bundle") { Bundle.open(File(temporary, "nothing")) }
        refused<BundleException>("has no manifest.json") { Bundle.open(temporary) }
        refused<BundleException>("is not a folder") { Bundle.open(File("a\u0000b")) }
        File(temporary, "file").writeText("x")
        refused<BundleException>("is a file") { Bundle.open(File(temporary, "file")) }
        File(temporary, "manifest.json").mkdirs()
        refused<BundleException>("cannot be read: Is a directory") { Bundle.open(temporary) }
    }

    @Test
    fun `every bit of a small file counts`() {
        val folder = copied()
        draws(20) { random ->
            val file = File(folder, listOf("target/model.onnx", "tokenizer/tokenizer.json")[random.nextInt(2)])
            val whole = file.readBytes()
            val at = random.nextInt(whole.size)
            file.writeBytes(whole.copyOf().also { it[at] = (it[at].toInt() xor (1 shl random.nextInt(8))).toByte() })
            refused<BundleException>("${file.name} was altered") { Bundle.open(folder) }
            file.writeBytes(whole)
        }
        Bundle.open(folder)
    }

    @Test
    fun `a manifest with any byte changed is read or refused in one sentence`() {
        val folder = copied()
        val manifest = File(folder, "manifest.json")
        val whole = manifest.readBytes()
        var refusals = 0
        draws(300) { random ->
            val changed = whole.copyOf()
            repeat(1 + random.nextInt(3)) { changed[random.nextInt(changed.size)] = random.nextInt(256).toByte() }
            manifest.writeBytes(changed)
            try {
                Bundle.open(folder)
            } catch (error: BundleException) {
                refusals++
                assertTrue('\n' !in error.message.orEmpty())
            }
        }
        assertTrue(refusals > 50, "$refusals")
    }

    @Test
    @Timeout(20)
    fun `a pipe in a file's place does not wait`() {
        val folder = copied()
        val file = File(folder, "target/model.onnx").apply { delete() }
        val made = ProcessBuilder("mkfifo", file.path).start()
        assertTrue(made.waitFor(5, TimeUnit.SECONDS))
        refused<BundleException>("it is not a regular file") { Bundle.open(folder) }
    }

    @Test
    fun `a bundle without this format is refused by name`() {
        val folder = copied()
        val manifest = File(folder, "manifest.json")
        manifest.writeText(manifest.readText().replace("\"onnx\":", "\"gguf\":"))
        refused<BundleException>("no target in the format 'onnx', only gguf") { Bundle.open(folder) }
    }
}
