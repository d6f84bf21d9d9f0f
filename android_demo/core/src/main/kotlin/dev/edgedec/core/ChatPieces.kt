package dev.edgedec.core

import java.io.File
import java.io.IOException

/**
 * A chat template as pieces of text: how a conversation becomes what the model was trained to read.
 *
 * The export writes `tokenizer/chat_pieces.json` where pieces give the template's own text; docs/bundle-format.md says
 * what each field means.
 */
class ChatPieces internal constructor(
    private val bos: String,
    private val roles: Map<String, Turn>,
    private val generation: String,
    private val defaultSystem: String?,
    private val strip: List<String>,
    private val afterSystem: Turn?,
    private val thinkEnd: ThinkEnd?,
) {
    /** The text before and after a message. */
    internal data class Turn(val open: String, val close: String)

    internal data class ThinkEnd(val mark: String, val drop: String)

    /**
     * The text of a conversation, ready for the assistant's turn; to be encoded without special tokens.
     *
     * @param messages a system message or none, then a user and the assistant in turns, and a user's message last
     * @throws InputException they are anything else, empty or too long, or the model takes no system message
     */
    fun render(messages: List<Message>): String {
        check(messages)
        val text = StringBuilder(bos)
        var before: String? = null
        fun add(role: String, content: String) {
            val turn = afterSystem?.takeIf { before == SYSTEM } ?: roles.getValue(role)
            text.append(turn.open).append(content).append(turn.close)
            before = role
        }
        if (defaultSystem != null && messages[0].role != SYSTEM) add(SYSTEM, defaultSystem)
        for (message in messages) add(message.role, content(message))
        return text.append(generation).toString()
    }

    private fun check(messages: List<Message>) {
        val named = messages.map { it.role }
        val system = named.firstOrNull() == SYSTEM
        if (system && SYSTEM !in roles) {
            throw InputException("messages[0]: this model takes no system message: leave it out")
        }
        val turns = if (system) named.drop(1) else named
        val inTurns = turns.withIndex().all { (at, role) -> role == if (at % 2 == 0) USER else ASSISTANT }
        if (!inTurns || turns.lastOrNull() != USER) {
            throw InputException(
                "messages: expected user and assistant in turns, and a user's message last, found" +
                    " ${oneLine(named.joinToString().take(100))}",
            )
        }
        messages.forEachIndexed { at, message ->
            if (message.content.all(::isWhite)) throw InputException("messages[$at]: expected some text, found none")
        }
        if (messages.sumOf { it.content.length.toLong() } > MAX_CHARS) {
            throw InputException("messages: expected at most $MAX_CHARS characters")
        }
    }

    private fun content(message: Message): String {
        var text = message.content
        if (message.role == ASSISTANT && thinkEnd != null && thinkEnd.mark in text) {
            text = text.substringAfterLast(thinkEnd.mark).trimStart { "$it" == thinkEnd.drop }
        }
        return if (message.role in strip) text.trim(::isWhite) else text
    }

    /** White space as Python's `str.strip` takes it, which is more than Kotlin's `trim` takes. */
    private fun isWhite(char: Char): Boolean = isSpace(char.code) || char in '\u001c'..'\u001f'

    internal companion object {
        private const val NAME = "chat_pieces.json"
        private const val MAX_BYTES = 256 shl 10
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
            if (data.size > MAX_BYTES) throw BundleException("$file: expected at most ${MAX_BYTES shr 10} KiB")
            val found = jsonObject(data) ?: throw BundleException("$file is not a JSON object: export the bundle again")
            return parse(Fields(found, file.path))
        }

        fun parse(fields: Fields): ChatPieces {
            if (fields.size("version") != VERSION) throw fields.wrong("version", "$VERSION: upgrade edgedec")
            val roles = fields.fields("roles")
            roles.only(SYSTEM, USER, ASSISTANT)
            val names = if (SYSTEM in roles.names) listOf(SYSTEM, USER, ASSISTANT) else listOf(USER, ASSISTANT)
            fields.only(
                "version", "bos", "roles", "generation", "default_system", "strip", "after_system", "think_end",
            )
            val strip = fields.texts("strip")
            if (!names.containsAll(strip)) throw fields.wrong("strip", "a list of roles")
            val default = if (fields.has("default_system")) fields.anyText("default_system") else null
            if (default != null && SYSTEM !in names) {
                throw fields.wrong("default_system", "null without the role system")
            }
            return ChatPieces(
                bos = fields.anyText("bos"),
                roles = names.associateWith { turn(roles.fields(it)) },
                generation = fields.anyText("generation"),
                defaultSystem = default,
                strip = strip,
                afterSystem = if (fields.has("after_system")) turn(fields.fields("after_system")) else null,
                thinkEnd = if (fields.has("think_end")) thinkEnd(fields.fields("think_end")) else null,
            )
        }

        private fun turn(fields: Fields): Turn {
            fields.only("open", "close")
            return Turn(fields.anyText("open"), fields.anyText("close"))
        }

        private fun thinkEnd(fields: Fields): ThinkEnd {
            fields.only("mark", "drop")
            val drop = fields.anyText("drop")
            if (drop.length > 1) throw fields.wrong("drop", "a character, or none")
            return ThinkEnd(fields.text("mark"), drop)
        }
    }
}
