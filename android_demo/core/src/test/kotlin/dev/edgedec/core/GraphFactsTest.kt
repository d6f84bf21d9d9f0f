package dev.edgedec.core

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

class GraphFactsTest {
    private val whole = """{"graph_version": 1, "name": "target", "layers": 4, "kv_heads": 4, "head_dim": 64,
        "vocab_size": 4096, "max_context": 8192, "eos_ids": [0, 4], "top_k": 8}"""

    @Test
    fun `facts are read`() {
        val facts = GraphFacts.parse(mapOf("edgedec" to whole), "model.onnx")
        assertEquals(GraphFacts("target", 4, 4, 4096, 8192, 8, setOf(0, 4)), facts)
    }

    @Test
    fun `a graph of another exporter or version is refused by name`() {
        assertTrue(refusal(emptyMap()).contains("not exported by edgedec"))
        val newer = whole.replace("\"graph_version\": 1", "\"graph_version\": 3")
        assertEquals("model.onnx: graph_version is 3, expected 1: export it again", refusal(mapOf("edgedec" to newer)))
        val hybrid = whole.replace("\"graph_version\": 1", "\"graph_version\": 2")
        assertEquals(
            "model.onnx: this app computes attention only, and layers of this model have short convolutions in its place: choose another model",
            refusal(mapOf("edgedec" to hybrid)),
        )
        val varied = newer.replace("\"layers\": 4,", "\"layers\": 4, \"varied\": {\"heads\": [], \"lenders\": []},")
        assertEquals(
            "model.onnx: this app computes layers of one kind, and the heads of this model differ by layer: choose another model",
            refusal(mapOf("edgedec" to varied)),
        )
    }

    @Test
    fun `damaged facts are one sentence`() {
        val damaged = listOf(
            "", "{", "[]", "1", "null", "{}", "[".repeat(100_000), "{\"a\":".repeat(100_000),
            whole.replace("4096", "-1"), whole.replace("4096", "4e3"), whole.replace("4096", "\"4096\""),
            whole.replace("4096", "99999999999"), whole.replace("[0, 4]", "4"), whole.replace("[0, 4]", "[-1]"),
            whole.replace("\"name\"", "\"title\""), whole.replace("\"target\"", "[]"), whole.replace("8}", "true}"),
        )
        for (text in damaged) {
            val message = refusal(mapOf("edgedec" to text))
            assertTrue(message.startsWith("model.onnx: ") && "\n" !in message && message.length < 200, message)
        }
    }

    private fun refusal(metadata: Map<String, String>): String =
        assertThrows(BundleException::class.java) { GraphFacts.parse(metadata, "model.onnx") }.message.orEmpty()
}
