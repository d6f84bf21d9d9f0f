package dev.edgedec.core

import java.io.File
import java.io.IOException

/**
 * How a conversation becomes the text that a model was trained to read, without its template's language.
 *
 * `tokenizer/chat_pieces.json`, which the export writes only if it gives the template's own texts:
 *
 * ```
 * {
 *   "version": 1,
 *   "bos": "text before everything",
 *   "roles": {"user": {"open": "...", "close": "..."}, "assistant": {...}, "system": {...}},
 *   "generation": "text that opens the assistant's turn",
 *   "default_system": "text if the first message is not a system message" or null,
 *   "strip": whether white space around contents is left out
 * }
 * ```
 *
 * Two more fields may be missing or null:
 *
 * - `system_in_user`: a template without a system role (Gemma 3, Mistral) puts the first message's content into the user's
 *   turn that follows, after its `open`; this text stands between the two. The system text is not stripped.
 * - `assistant_after`: of an assistant's earlier turns only what is behind the last such text is kept, without line ends
 *   in front (`</think>` in Qwen 3).
 */
class ChatPieces internal constructor(
    private val bos: String,
    private val roles: Map<String, Turn>,
    private val generation: String,
    private val defaultSystem: String?,
    private val strip: Boolean,
    private val systemInUser: String? = null,
    private val assistantAfter: String? = null,
) {
    /** What stands around the content of a message. */
    internal data class Turn(val open: String, val close: String)

    /**
     * The text of a conversation, ready for the assistant's turn; to be encoded without special tokens.
     *
     * @throws InputException no messages, a role that the model does not have, or more than is read
     */
    fun render(messages: List<Message>): String {
        if (messages.isEmpty()) throw InputException("a conversation needs a message: give one of the role user")
        val first = messages.first()
        val inUser = if (first.role == SYSTEM && SYSTEM !in roles) systemInUser else null
        val text = StringBuilder(bos)
        if (first.role != SYSTEM) text.append(defaultSystem.orEmpty())
        messages.forEachIndexed { at, message ->
            if (at == 0 && inUser != null) return@forEachIndexed
            val turn = roles[message.role] ?: throw unknownRole(message.role)
            text.append(turn.open)
            if (at == 1 && inUser != null) text.append(first.content).append(inUser)
            text.append(content(message)).append(turn.close)
            if (text.length > MAX_CHARS) throw InputException("the conversation has more than $MAX_CHARS characters")
        }
        if (inUser != null && messages.getOrNull(1)?.role != USER) {
            throw InputException("this model reads a system message with the user's: give one of the role user after it")
        }
        return text.append(generation).toString()
    }

    private fun content(message: Message): String {
        var text = message.content
        if (message.role == ASSISTANT && assistantAfter != null && assistantAfter in text) {
            text = text.substringAfterLast(assistantAfter).trimStart('\n')
        }
        return if (strip) text.trim { isSpace(it.code) || it in '\u001c'..'\u001f' } else text
    }

    private fun unknownRole(role: String) = InputException(
        "this model has no role '${oneLine(role)}' here: use ${roles.keys.joinToString(" or ") { oneLine(it) }}",
    )

    internal companion object {
        private const val NAME = "chat_pieces.json"
        private const val MAX_BYTES = 1 shl 20
        private const val MAX_CHARS = 4_000_000
        private const val VERSION = 1L
        private const val SYSTEM = "system"
        private const val USER = "user"
        private const val ASSISTANT = "assistant"

        /** The pieces in a tokenizer's folder, or null if there are none. */
        fun load(folder: File): ChatPieces? {
            val file = File(folder, NAME)
            if (!file.exists()) return null
            val data = try {
                file.inputStream().use { it.upTo(MAX_BYTES + 1) }
            } catch (error: IOException) {
                throw BundleException("$file cannot be read: ${oneLine(error.message.orEmpty())}", error)
            }
            if (data.size > MAX_BYTES) throw BundleException("$file: expected at most ${MAX_BYTES shr 20} MiB")
            val found = jsonObject(data)
                ?: throw BundleException("$file: expected a JSON object: the file is damaged, copy the bundle again")
            return parse(Fields(found, file.path))
        }

        fun parse(fields: Fields): ChatPieces {
            if (fields.size("version") != VERSION) throw fields.wrong("version", "$VERSION: upgrade edgedec")
            val roles = fields.fields("roles")
            return ChatPieces(
                bos = fields.textOr("bos", ""),
                roles = roles.names.associateWith { name ->
                    val turn = roles.fields(name)
                    Turn(turn.textOr("open", ""), turn.textOr("close", ""))
                },
                generation = fields.textOr("generation", ""),
                defaultSystem = fields.optional("default_system"),
                strip = fields.flagOr("strip", false),
                systemInUser = fields.optional("system_in_user"),
                assistantAfter = fields.optional("assistant_after")?.takeIf { it.isNotEmpty() },
            )
        }

        private fun Fields.optional(name: String): String? = if (has(name)) textOr(name, "") else null
    }
}
