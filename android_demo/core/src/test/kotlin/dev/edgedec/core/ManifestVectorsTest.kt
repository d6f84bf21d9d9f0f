package dev.edgedec.core

import java.io.File
import java.nio.file.Files
import kotlinx.serialization.json.JsonNull
import kotlinx.serialization.json.int
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.io.TempDir

/** Bundles that Python opens or refuses. */
class ManifestVectorsTest {
    @TempDir
    lateinit var temporary: File

    @Test
    fun `what Python refuses is refused with the same words`() {
        val found = LinkedHashMap<String, String?>()
        val expected = LinkedHashMap<String, String?>()
        FormatVectors.read("manifests.json").objects().forEachIndexed { at, case ->
            val folder = File(temporary, "$at/bundle").apply { mkdirs() }
            val times = case["times"]?.jsonPrimitive?.int ?: 1
            File(folder, "manifest.json").writeText(case.string("manifest").repeat(times))
            for ((name, content) in case.getValue("files").jsonObject) {
                val file = File(folder, name)
                file.parentFile.mkdirs()
                file.writeText(content.jsonPrimitive.content)
            }
            for ((name, to) in case["links"]?.jsonObject.orEmpty()) {
                Files.createSymbolicLink(File(folder, name).toPath(), File(to.jsonPrimitive.content).toPath())
            }
            val words = case.getValue("refused").let { if (it is JsonNull) null else it.jsonPrimitive.content }
            val name = case.string("name")
            expected[name] = words
            found[name] = try {
                Bundle.open(folder)
                null
            } catch (refused: BundleException) {
                val message = refused.message.orEmpty()
                if (words != null && words in message && '\n' !in message) words else message
            }
        }
        val differing = expected.filter { (name, words) -> words != found[name] }
        assertEquals(differing, found.filterKeys { it in differing })
        assertTrue(expected.size > 50)
    }
}
