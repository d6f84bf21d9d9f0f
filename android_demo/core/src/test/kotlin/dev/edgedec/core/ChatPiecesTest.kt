package dev.edgedec.core

import java.io.File
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.jsonObject
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNotNull
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.io.TempDir

class ChatPiecesTest {
    @TempDir
    lateinit var folder: File

    private val all = FormatVectors.read("chat.json").jsonObject.getValue("pieces").objects()

    private fun messages(case: JsonObject) =
        case.getValue("messages").objects().map { Message(it.string("role"), it.string("content")) }

    @Test
    fun `conversations become Python's texts`() {
        for (template in all) {
            val pieces = ChatPieces.parse(Fields(template.getValue("pieces").jsonObject, "pieces"))
            for (case in template.getValue("cases").objects()) {
                if ("refused" in case) refused<InputException>("messages") { pieces.render(messages(case)) }
                else assertEquals(case.string("text"), pieces.render(messages(case)), "${template["name"]} $case")
            }
        }
    }

    @Test
    fun `pieces are read from a tokenizer's folder`() {
        assertNull(ChatPieces.load(folder))
        File(folder, "chat_pieces.json").writeText(all[0].getValue("pieces").toString())
        assertNotNull(ChatPieces.load(folder))
    }

    @Test
    fun `damaged pieces are refused`() {
        val sound = all.first { it.string("name") == "qwen3" }.getValue("pieces").jsonObject
        val text = JsonPrimitive("a")
        val wrong = mapOf(
            "version" to JsonPrimitive(2),
            "bos" to JsonPrimitive(1),
            "roles" to JsonArray(emptyList()),
            "generation" to JsonArray(emptyList()),
            "default_system" to JsonPrimitive(true),
            "strip" to JsonArray(listOf(JsonPrimitive("tool"))),
            "after_system" to text,
            "think_end" to JsonObject(mapOf("mark" to text, "drop" to JsonPrimitive("ab"))),
        )
        assertEquals(sound.keys, wrong.keys)
        for ((name, value) in wrong) {
            refused<BundleException>(name) { ChatPieces.parse(Fields(JsonObject(sound + (name to value)), "pieces")) }
        }
        val more = Fields(JsonObject(sound + ("other" to text)), "pieces")
        refused<BundleException>("unknown field") { ChatPieces.parse(more) }
        for (content in listOf("[]", "", "{\"version\": 1", "[".repeat(100_000))) {
            File(folder, "chat_pieces.json").writeText(content)
            refused<BundleException>("chat_pieces.json is not a JSON object") { ChatPieces.load(folder) }
        }
        File(folder, "chat_pieces.json").writeText(" ".repeat(1 shl 20))
        refused<BundleException>("at most 256 KiB") { ChatPieces.load(folder) }
    }
}
